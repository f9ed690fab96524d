import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * What Apache's allocation strategies answer: each line of stdin is a case of test_allocate.py, each
 * mark `share` the indexes of the queues given, or the class of what was thrown.
 */
public final class Allocation {
    public static void main(String[] arguments) throws Exception {
        Marked.exitOnFailure();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null && !line.equals("stop"); line = in.readLine()) {
            Marked.line("share", answer(JSON.parseObject(line)));
        }
        Marked.line("end", null);
    }

    private static Object answer(JSONObject test) {
        List<MessageQueue> queues = queues(test.getJSONArray("queues"));
        List<MessageQueue> sorted = new ArrayList<>(queues);
        List<String> clients = new ArrayList<>(test.getJSONArray("clients").toJavaList(String.class));
        if (test.getBooleanValue("sort")) {
            Collections.sort(sorted);
            Collections.sort(clients);
        }
        try {
            AllocateMessageQueueStrategy strategy = strategy(test.getJSONObject("strategy"), queues);
            List<MessageQueue> share = strategy.allocate("group", test.getString("client"), sorted, clients);
            List<Object> answer = new ArrayList<>();
            answer.add(strategy.getName());
            share.forEach(queue -> answer.add(queues.indexOf(queue)));
            return answer;
        } catch (RuntimeException thrown) {
            return thrown.getClass().getSimpleName();
        }
    }

    private static AllocateMessageQueueStrategy strategy(JSONObject how, List<MessageQueue> queues) {
        switch (how.getString("kind")) {
            case "averagely":
                return new AllocateMessageQueueAveragely();
            case "circle":
                return new AllocateMessageQueueAveragelyByCircle();
            case "config":
                AllocateMessageQueueByConfig config = new AllocateMessageQueueByConfig();
                config.setMessageQueueList(
                    queues.stream().filter(queue -> queue.getQueueId() % 2 == 0).collect(Collectors.toList()));
                return config;
            case "machine-room":
                AllocateMessageQueueByMachineRoom room = new AllocateMessageQueueByMachineRoom();
                room.setConsumeridcs(new HashSet<>(how.getJSONArray("rooms").toJavaList(String.class)));
                return room;
            case "nearby":
                return new AllocateMachineRoomNearby(strategy(how.getJSONObject("within"), queues),
                    new AllocateMachineRoomNearby.MachineRoomResolver() {
                        @Override
                        public String brokerDeployIn(MessageQueue queue) {
                            return before(queue.getBrokerName(), '@');
                        }

                        @Override
                        public String consumerDeployIn(String client) {
                            return before(client, '-');
                        }
                    });
            case "hash":
                int nodes = how.getIntValue("nodes");
                return how.getBooleanValue("md5")
                    ? new AllocateMessageQueueConsistentHash(nodes)
                    : new AllocateMessageQueueConsistentHash(nodes, String::hashCode);
            default:
                throw new IllegalStateException(how.toString());
        }
    }

    private static String before(String name, char mark) {
        return name.substring(0, Math.max(name.indexOf(mark), 0));
    }

    private static List<MessageQueue> queues(JSONArray rows) {
        List<MessageQueue> queues = new ArrayList<>();
        for (int i = 0; i < rows.size(); i++) {
            JSONArray row = rows.getJSONArray(i);
            queues.add(new MessageQueue(row.getString(0), row.getString(1), row.getIntValue(2)));
        }
        return queues;
    }
}
