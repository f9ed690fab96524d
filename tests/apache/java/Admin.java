import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Apache's DefaultMQAdminExt under a test: each line of stdin is a call, its words separated by
 * spaces; a line `answer` gives what came of it, a line `refused` the response code and text. Types
 * that moved to another package between 4.9 and 5 are left for the compiler to infer.
 */
final class Admin {
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
            case "reset": // topic group timestamp force
                return rows(admin.resetOffsetByTimestamp(
                    words[1], words[2], Long.parseLong(words[3]), Boolean.parseBoolean(words[4])));
            case "resetOld": // group topic timestamp force
                return resetOld(admin, words);
            case "stats": // group topic
                return stats(admin, words[1], words[2]);
            case "connections": // group
                return connections(admin, words[1]);
            case "producers": // group topic
                return new TreeSet<>(admin.examineProducerConnectionInfo(words[1], words[2])
                    .getConnectionSet().stream().map(found -> found.getClientId()).toList());
            case "info": // group client jstack
                return info(admin, words);
            case "directly": // group client topic message
                var result = admin.consumeMessageDirectly(words[1], words[2], words[3], words[4]);
                return new Object[] {result.getConsumeResult().name(), result.isOrder(), result.getRemark()};
            case "view": // topic message
                var message = admin.viewMessage(words[1], words[2]);
                return new Object[] {message.getTopic(), message.getKeys(), Marked.crc(message.getBody())};
            case "status": // topic group
                Map<String, Object> status = new TreeMap<>();
                admin.getConsumeStatus(words[1], words[2], "")
                    .forEach((client, table) -> status.put(client, rows(table)));
                return status;
            case "groups": // topic
                return new TreeSet<>(admin.queryTopicConsumeByWho(words[1]).getGroupList());
            case "clone": // source group topic
                admin.cloneGroupOffset(words[1], words[2], words[3], false);
                return true;
            case "track": // topic message
                var sent = admin.viewMessage(words[1], words[2]);
                return admin.messageTrackDetail(sent).stream()
                    .map(track -> new Object[] {track.getConsumerGroup(), track.getTrackType().name()})
                    .toList();
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    /** [topic, broker, queue, offset], in order. */
    private static List<Object[]> rows(Map<MessageQueue, Long> offsets) {
        List<Object[]> rows = new ArrayList<>();
        new TreeMap<>(offsets).forEach((queue, offset) -> rows.add(row(queue, offset)));
        return rows;
    }

    private static Object[] row(MessageQueue queue, Object... values) {
        List<Object> row = new ArrayList<>(
            List.of(queue.getTopic(), queue.getBrokerName(), queue.getQueueId()));
        row.addAll(List.of(values));
        return row.toArray();
    }

    /** [broker, queue, end, consumed, reset to], in order. */
    private static List<Object[]> resetOld(DefaultMQAdminExt admin, String[] words) throws Exception {
        List<Object[]> rows = new ArrayList<>();
        for (var stats : admin.resetOffsetByTimestampOld(
                words[1], words[2], Long.parseLong(words[3]), Boolean.parseBoolean(words[4]))) {
            rows.add(new Object[] {stats.getBrokerName(), stats.getQueueId(), stats.getBrokerOffset(),
                stats.getConsumerOffset(), stats.getRollbackOffset()});
        }
        return rows;
    }

    private static List<Object[]> stats(DefaultMQAdminExt admin, String group, String topic) throws Exception {
        List<Object[]> rows = new ArrayList<>();
        new TreeMap<>(admin.examineConsumeStats(group, topic).getOffsetTable()).forEach((queue, offsets) ->
            rows.add(row(queue, offsets.getBrokerOffset(), offsets.getConsumerOffset(), offsets.getLastTimestamp())));
        return rows;
    }

    private static Map<String, Object> connections(DefaultMQAdminExt admin, String group) throws Exception {
        var found = admin.examineConsumerConnectionInfo(group);
        Map<String, Object> shown = new LinkedHashMap<>();
        shown.put("type", found.getConsumeType().name());
        shown.put("model", found.getMessageModel().name());
        shown.put("from", found.getConsumeFromWhere().name());
        shown.put("topics", new TreeSet<>(found.getSubscriptionTable().keySet()));
        shown.put("clients", found.getConnectionSet().stream()
            .map(client -> new Object[] {client.getClientId(), client.getLanguage().name(), client.getVersion()})
            .toList());
        return shown;
    }

    private static Map<String, Object> info(DefaultMQAdminExt admin, String[] words) throws Exception {
        var found = admin.getConsumerRunningInfo(words[1], words[2], Boolean.parseBoolean(words[3]));
        Map<String, Object> shown = new LinkedHashMap<>();
        shown.put("properties", new TreeMap<>(found.getProperties()));
        shown.put("topics", new TreeSet<>(found.getSubscriptionSet().stream().map(one -> one.getTopic()).toList()));
        shown.put("queues", found.getMqTable().entrySet().stream()
            .map(entry -> row(entry.getKey(), entry.getValue().getCommitOffset())).toList());
        shown.put("statuses", new TreeSet<>(found.getStatusTable().keySet()));
        shown.put("stacks", found.getJstack());
        shown.put("formatted", found.formatString());
        return shown;
    }
}
