import org.apache.rocketmq.common.message.MessageExt;

/** The rows of received messages, the same from both consumers. */
final class Received {
    private final Marked marked;

    Received(boolean countsOnly) {
        marked = new Marked("messages", countsOnly);
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
