import org.apache.rocketmq.common.message.MessageExt;

/**
 * The rows of received messages, the same from both consumers. `report`: `messages`, some hundred to
 * a line; `count`, just how many; `each`, printed before they count as consumed, as one must be that
 * will be killed.
 */
final class Received {
    private final Marked marked;
    private final boolean each;

    Received(String report) {
        marked = new Marked("messages", report.equals("count"));
        each = report.equals("each");
    }

    void add(MessageExt message) {
        marked.add(message.getKeys(), message.getBrokerName(), message.getQueueId(),
            message.getQueueOffset(), message.getTags(), message.getReconsumeTimes(),
            Marked.crc(message.getBody()));
        if (each) {
            marked.flush();
        }
    }

    void end() {
        Marked.line("stopped", marked.flush());
    }
}
