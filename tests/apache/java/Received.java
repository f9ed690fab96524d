import java.util.Set;
import org.apache.rocketmq.client.consumer.MessageQueueListener;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The rows of received messages, and which queues the consumer has, the same from both consumers. */
final class Received implements MessageQueueListener {
    private final Marked marked;
    private final String topic;

    Received(String topic, boolean countsOnly) {
        this.topic = topic;
        marked = new Marked("messages", countsOnly);
    }

    @Override
    public void messageQueueChanged(String changed, Set<MessageQueue> all, Set<MessageQueue> mine) {
        if (changed.equals(topic)) {
            Marked.line("queues", mine.stream().mapToInt(MessageQueue::getQueueId).sorted().toArray());
        }
    }

    void add(MessageExt message) {
        marked.add(message.getKeys(), message.getBrokerName(), message.getQueueId(),
            message.getQueueOffset(), message.getTags(), message.getReconsumeTimes(),
            Marked.crc(message.getBody()));
    }

    void end() {
        Marked.line("stopped", marked.flush());
    }
}
