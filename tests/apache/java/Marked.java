import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.zip.CRC32;

/**
 * How every program here talks with java_program.py: `name=value` arguments in, lines `@@ kind json`
 * out (RocketMQ's own libraries print on stdout too), and the end when stdin says `stop` or closes,
 * so that no JVM outlives the Python process which started it.
 */
final class Marked {
    private static final int ROWS_A_LINE = 500;
    private static final long LINE_EVERY_MS = 50;

    private final String kind;
    private final boolean countsOnly;
    private List<Object[]> rows = new ArrayList<>();
    private long count;
    private long reported;

    /** Gathers rows and prints them some hundred to a line; with countsOnly just how many came. */
    Marked(String kind, boolean countsOnly) {
        this.kind = kind;
        this.countsOnly = countsOnly;
        Thread printer = new Thread(this::printForEver, "marked-" + kind);
        printer.setDaemon(true);
        printer.start();
    }

    synchronized void add(Object... row) {
        count++;
        if (countsOnly) {
            return;
        }
        rows.add(row);
        if (rows.size() == ROWS_A_LINE) {
            flush();
        }
    }

    synchronized long flush() {
        if (countsOnly && count > reported) {
            line("count", count);
        } else if (!rows.isEmpty()) {
            line(kind, rows);
            rows = new ArrayList<>();
        }
        reported = count;
        return count;
    }

    private void printForEver() {
        try {
            while (true) {
                Thread.sleep(LINE_EVERY_MS);
                flush();
            }
        } catch (InterruptedException end) {
            Thread.currentThread().interrupt();
        }
    }

    static void line(String kind, Object value) {
        System.out.println("@@ " + kind + " " + JSON.toJSONString(value, SerializerFeature.WriteMapNullValue));
    }

    static Map<String, String> options(String[] arguments) {
        exitOnFailure();
        Map<String, String> options = new HashMap<>();
        for (String argument : arguments) {
            int equals = argument.indexOf('=');
            options.put(argument.substring(0, equals), argument.substring(equals + 1));
        }
        return options;
    }

    /** Makes an exception of the main thread end the program, whose other threads would go on. */
    static void exitOnFailure() {
        Thread.currentThread().setUncaughtExceptionHandler((thread, failure) -> {
            failure.printStackTrace();
            System.exit(1);
        });
    }

    /** Opens when stdin says `stop` or ends. */
    static CountDownLatch stopped() {
        CountDownLatch latch = new CountDownLatch(1);
        Thread reader = new Thread(() -> {
            try (BufferedReader in = new BufferedReader(
                    new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
                for (String line = in.readLine(); line != null; line = in.readLine()) {
                    if (line.equals("stop")) {
                        break;
                    }
                }
            } catch (java.io.IOException broken) {
                line("error", broken.toString());
            } finally {
                latch.countDown();
            }
        }, "stdin");
        reader.setDaemon(true);
        reader.start();
        return latch;
    }

    static long crc(byte[] body) {
        CRC32 crc = new CRC32();
        crc.update(body);
        return crc.getValue();
    }
}
