import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;

/**
 * Apache's mqadmin, many commands in one JVM: each line of stdin is a command, its words separated by
 * tabs; the line `output` that follows has all it printed. A first word `until=TEXT` is for commands
 * that go on for ever: they are interrupted once they have printed that text.
 */
final class Mqadmin {
    private static final PrintStream OUT = System.out;

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = Marked.options(arguments);
        System.setProperty("rocketmq.namesrv.addr", options.get("nameServer"));
        OUT.println("@@ commands " + com.alibaba.fastjson.JSON.toJSONString(commands()));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null && !line.equals("stop"); line = in.readLine()) {
            OUT.println("@@ output " + com.alibaba.fastjson.JSON.toJSONString(run(line.split("\t", -1))));
        }
        System.exit(0);
    }

    /** The names of all commands there are. */
    private static TreeSet<String> commands() throws Exception {
        MQAdminStartup.initCommand();
        TreeSet<String> names = new TreeSet<>();
        for (Object command : registered()) {
            names.add(((SubCommand) command).commandName());
        }
        return names;
    }

    /** What initCommand() adds to, again with each command that is run. */
    private static List<?> registered() throws Exception {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (List.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                return (List<?>) field.get(null);
            }
        }
        throw new IllegalStateException("MQAdminStartup has no list of commands");
    }

    /** Whether a client of 5.x that ends waits up to three seconds for its thread of events. */
    private static boolean waitsForNothing(Thread thread) {
        for (StackTraceElement element : thread.getStackTrace()) {
            if (element.getClassName().endsWith(".ServiceThread") && element.getMethodName().equals("shutdown")) {
                return true;
            }
        }
        return false;
    }

    private static String run(String[] words) throws Exception {
        String until = words[0].startsWith("until=") ? words[0].substring("until=".length()) : null;
        String[] command = until == null ? words : java.util.Arrays.copyOfRange(words, 1, words.length);
        registered().clear(); // commands keep their clients, which are shut down
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream capture = new PrintStream(printed, true, StandardCharsets.UTF_8);
        System.setOut(capture);
        System.setErr(capture);
        Thread thread = new Thread(() -> MQAdminStartup.main0(command, null), "mqadmin");
        thread.start();
        while (thread.isAlive()) {
            thread.join(5);
            boolean enough = until != null && printed.toString(StandardCharsets.UTF_8).contains(until);
            if (enough || waitsForNothing(thread)) {
                thread.interrupt();
            }
        }
        System.setOut(OUT);
        return printed.toString(StandardCharsets.UTF_8);
    }
}
