import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Prints, as `signature` lines, what AclClientRPCHook adds to requests, beside what it is given. */
final class GoldenSignatures {
    private static final String ODD_TEXT = "Ünïcode 消息 \uD83D\uDE80 \"quoted\" 100%\\ \u0001k\u0002";
    private static final byte[] NO_BODY = null;

    public static void main(String[] arguments) {
        SessionCredentials plain = new SessionCredentials("rocketmq2", "12345678");
        SessionCredentials token = new SessionCredentials("STS.id", "s\u00e9cret 消", "token==");
        byte[] body = "a body: \u0000\u00ff 消".getBytes(StandardCharsets.UTF_8);
        sign("nothing but the access key", plain, NO_BODY);
        sign("an empty body", plain, new byte[0], "topic", "t");
        sign("a route", plain, NO_BODY, "topic", "golden-topic", "acceptStandardJsonOnly", "true");
        sign("the order of names", plain, body,
            "b", "1", "a", "2", "B", "3", "Zz", "4", "_x", "5", "a1", "6", "ab", "7", "aB", "8");
        sign("odd values", plain, body, "i", ODD_TEXT, "empty", "", "消", "消");
        sign("a security token", token, body, "consumerGroup", "g", "SecurityTokens", "x");
        sign("signed before", plain, body, "topic", "t", "Signature", "of another");
        sign("a send", plain, body, "a", "group", "b", "topic%1", "c", "TBW102", "d", "4", "e", "3",
            "f", "0", "g", "1700000000123", "h", "-7", "i", "KEYS\u0001k1 k2\u0002WAIT\u0001true\u0002",
            "j", "0", "k", "false", "m", "false", "n", "broker-a");
        sign("a send with a token", token, body, "a", "g", "b", "t", "c", "TBW102", "d", "4", "e", "3",
            "f", "1", "g", "1700000000123", "h", "0", "i", ODD_TEXT, "j", "0", "k", "true", "m", "true",
            "n", "b");
        Marked.line("done", 9);
        System.exit(0);
    }

    private static void sign(String name, SessionCredentials credentials, byte[] body, String... pairs) {
        RemotingCommand request = RemotingCommand.createRequestCommand(1, null);
        Map<String, String> fields = new TreeMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            fields.put(pairs[i], pairs[i + 1]);
            request.addExtField(pairs[i], pairs[i + 1]);
        }
        request.setBody(body);
        new AclClientRPCHook(credentials).doBeforeRequest("127.0.0.1:10911", request);
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("name", name);
        line.put("accessKey", credentials.getAccessKey());
        line.put("secretKey", credentials.getSecretKey());
        line.put("securityToken", credentials.getSecurityToken());
        line.put("fields", fields);
        line.put("body", body == null || body.length == 0 ? "" : hex(body));
        line.put("signed", new TreeMap<>(request.getExtFields()));
        Marked.line("signature", line);
    }

    private static String hex(byte[] bytes) {
        return String.format("%0" + bytes.length * 2 + "x", new BigInteger(1, bytes));
    }
}
