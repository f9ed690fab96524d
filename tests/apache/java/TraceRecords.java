import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.rocketmq.client.AccessChannel;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;

/** Decodes trace records, given in hex, with Apache's own class, and encodes each again. */
final class TraceRecords {
    public static void main(String[] arguments) {
        Map<String, String> options = Marked.options(arguments);
        String hex = options.get("records");
        byte[] bytes = new byte[hex.length() / 2];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
        }
        String records = new String(bytes, StandardCharsets.UTF_8);
        for (TraceContext context : TraceDataEncoder.decoderFromTraceDataString(records)) {
            context.setAccessChannel(AccessChannel.LOCAL);
            Marked.line("record", TraceDataEncoder.encoderFromContextBean(context).getTransData());
        }
    }
}
