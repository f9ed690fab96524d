import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * What DefaultMQAdminExt does with settings and statistics of brokers and name servers: each line of
 * stdin is a call, its words separated by spaces; a line `answer` gives what came of it, a line
 * `refused` the response code and text. Types that moved to another package between 4.9 and 5 are
 * left for the compiler to infer.
 */
final class BrokerTools {
    private static final long TIMEOUT_MS = 60_000;

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = Marked.options(arguments);
        DefaultMQAdminExt admin =
            Connected.to(options.get("nameServer"), new DefaultMQAdminExt(Connected.PATIENCE_MS));
        admin.start();
        Marked.line("ready", true);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null && !line.equals("stop"); line = in.readLine()) {
            try {
                Marked.line("answer", call(admin, line.split(" ")));
            } catch (MQClientException refused) {
                Marked.line("refused", new Object[] {refused.getResponseCode(), refused.getErrorMessage()});
            } catch (MQBrokerException refused) {
                Marked.line("refused", new Object[] {refused.getResponseCode(), refused.getErrorMessage()});
            }
        }
        admin.shutdown();
        System.exit(0);
    }

    private static Object call(DefaultMQAdminExt admin, String[] words) throws Exception {
        switch (words[0]) {
            case "settings": // broker
                return admin.getBrokerConfig(words[1]);
            case "set": // broker key value
                admin.updateBrokerConfig(words[1], one(words[2], words[3]));
                return true;
            case "nameServerSettings": // name server
                return new TreeMap<>(admin.getNameServerConfig(List.of(words[1])));
            case "setNameServer": // name server key value
                admin.updateNameServerConfig(one(words[2], words[3]), List.of(words[1]));
                return true;
            case "statistic": // broker name key
                var data = admin.viewBrokerStatsData(words[1], words[2], words[3]);
                return new Object[] {
                    data.getStatsMinute().getSum(), data.getStatsHour().getSum(),
                    data.getStatsDay().getSum(), data.getStatsMinute().getTps(),
                    data.getStatsMinute().getAvgpt()};
            case "runtime": // broker
                return admin.fetchBrokerRuntimeStats(words[1]).getTable();
            case "progress": // broker
                return progress(admin, words[1]);
            case "spans": // topic group
                return admin.queryConsumeTimeSpan(words[1], words[2]).stream()
                    .map(span -> new Object[] {
                        span.getMessageQueue().getQueueId(), span.getMinTimeStamp(),
                        span.getMaxTimeStamp(), span.getConsumeTimeStamp(), span.getDelayTime()})
                    .toList();
            case "producers": // broker
                Map<String, Object> clients = new TreeMap<>();
                admin.getAllProducerInfo(words[1]).getData().forEach((group, found) ->
                    clients.put(group, found.stream().map(client -> client.getClientId()).toList()));
                return clients;
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    /** [total diff, {group: [consumer offset of each queue ...] of each topic}]. */
    private static Object progress(DefaultMQAdminExt admin, String broker) throws Exception {
        var found = admin.fetchConsumeStatsInBroker(broker, false, TIMEOUT_MS);
        Map<String, Object> groups = new TreeMap<>();
        for (var each : found.getConsumeStatsList()) {
            each.forEach((group, topics) -> groups.put(group, topics.stream()
                .map(stats -> new TreeMap<>(stats.getOffsetTable()).values().stream()
                    .map(offsets -> offsets.getConsumerOffset()).toList())
                .toList()));
        }
        return new Object[] {found.getTotalDiff(), found.getBrokerAddr(), groups};
    }

    private static Properties one(String key, String value) {
        Properties properties = new Properties();
        properties.setProperty(key, value);
        return properties;
    }
}
