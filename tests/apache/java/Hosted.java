import java.util.Arrays;

/**
 * Runs another program's main method (Apache's name server or broker) and ends it when stdin says
 * `stop` or closes. Arguments: the main class, then that program's own.
 */
final class Hosted {
    public static void main(String[] arguments) throws Exception {
        Marked.exitOnFailure();
        Class.forName(arguments[0])
            .getMethod("main", String[].class)
            .invoke(null, (Object) Arrays.copyOfRange(arguments, 1, arguments.length));
        Marked.stopped().await();
        System.exit(0);
    }
}
