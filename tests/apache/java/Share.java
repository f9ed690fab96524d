import java.util.List;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Divides queues averagely and prints which ones of `topic` the consumer shall get, whenever they
 * change: a line `wanted` with [broker, id] each. Held prints those that it has.
 */
final class Share extends AllocateMessageQueueAveragely implements AllocateMessageQueueStrategy {
    private final String topic;
    private List<MessageQueue> last;

    Share(String topic) {
        this.topic = topic;
    }

    @Override
    public List<MessageQueue> allocate(String group, String clientId, List<MessageQueue> all, List<String> clientIds) {
        List<MessageQueue> mine = super.allocate(group, clientId, all, clientIds);
        if (all.get(0).getTopic().equals(topic) && !mine.equals(last)) {
            Marked.line("wanted", pairs(mine));
            last = mine;
        }
        return mine;
    }

    static Object[] pairs(List<MessageQueue> queues) {
        return queues.stream().map(queue -> new Object[] {queue.getBrokerName(), queue.getQueueId()}).toArray();
    }
}
