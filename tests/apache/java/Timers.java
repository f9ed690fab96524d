import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends to `topic` one message by each way to set a timer, due after `delayMs` (at `dueMs`), and one
 * that it recalls. Prints `sent` {body: [id, handle]}, `recalled` id, `refused` what a second recall
 * of a handle that is none says.
 */
final class Timers {
    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = Marked.options(arguments);
        String topic = options.get("topic");
        long delayMs = Long.parseLong(options.get("delayMs"));
        DefaultMQProducer producer =
            Connected.to(options.get("nameServer"), new DefaultMQProducer("java-timers"));
        producer.setSendMsgTimeout(Connected.PATIENCE_MS);
        producer.start();
        Marked.line("ready", Collections.emptyMap());

        Message byDelay = message(topic, "delay-ms");
        byDelay.setDelayTimeMs(delayMs);
        Message bySeconds = message(topic, "delay-sec");
        bySeconds.setDelayTimeSec(delayMs / 1000);
        Message byTime = message(topic, "deliver-ms");
        byTime.setDeliverTimeMs(Long.parseLong(options.get("dueMs")));
        for (Message timed : new Message[] {byDelay, bySeconds, byTime}) {
            report(timed, producer.send(timed));
        }
        Message recalled = message(topic, "recalled");
        recalled.setDelayTimeMs(delayMs);
        SendResult result = producer.send(recalled);
        report(recalled, result);
        Marked.line("recalled", producer.recallMessage(topic, result.getRecallHandle()));
        try {
            producer.recallMessage(topic, result.getRecallHandle().substring(8));
        } catch (Exception refusal) {
            Marked.line("refused", String.valueOf(refusal.getMessage()));
        }
        producer.shutdown();
        System.exit(0);
    }

    private static Message message(String topic, String body) {
        return new Message(topic, body.getBytes(StandardCharsets.UTF_8));
    }

    private static void report(Message message, SendResult result) {
        String body = new String(message.getBody(), StandardCharsets.UTF_8);
        Marked.line("sent", new Object[] {body, result.getMsgId(), result.getRecallHandle()});
    }

    private Timers() {
    }
}
