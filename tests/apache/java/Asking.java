import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Replies in capitals to requests of `topic` with the tag java, and sends such with the tag python:
 * prints their replies as `reply` and `called`, and the code of one nobody answers as `late`. Finds
 * messages by their `keys` and prints them as `found`, and what `traces` tells of the message
 * `traced`. `hashes` are what Java's hashCode gives for some values.
 */
final class Asking {
    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = Marked.options(arguments);
        String server = options.get("nameServer");
        String topic = options.get("topic");
        CountDownLatch stopped = Marked.stopped();
        Marked.line("hashes", Arrays.asList("polygenelubricants".hashCode(), Long.valueOf(1L << 31).hashCode(),
            Double.valueOf(1.5).hashCode(), Boolean.TRUE.hashCode(), new UUID(1, 2).hashCode()));

        DefaultMQProducer producer = Connected.to(server, new DefaultMQProducer(topic + "-java-asks"));
        producer.setSendMsgTimeout(Connected.PATIENCE_MS);
        producer.start();
        DefaultMQPushConsumer consumer =
            Connected.to(server, new DefaultMQPushConsumer(topic + "-java-replies"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "java");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    producer.send(MessageUtil.createReplyMessage(message, bytes(text(message).toUpperCase(Locale.ROOT))));
                } catch (Exception failure) {
                    Marked.line("failed", failure.toString());
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Marked.line("ready", true);

        for (int i = 0; i < 3; i++) {
            Message reply = producer.request(new Message(topic, "python", bytes("java" + i)), Connected.PATIENCE_MS);
            Marked.line("reply", text(reply));
        }
        producer.request(new Message(topic, "python", bytes("called")), new RequestCallback() {
            @Override
            public void onSuccess(Message message) {
                Marked.line("called", text(message));
            }

            @Override
            public void onException(Throwable failure) {
                Marked.line("failed", failure.toString());
            }
        }, Connected.PATIENCE_MS);
        boolean late = false;
        for (int millis = 300; !late; millis *= 10) {
            try {
                producer.request(new Message(topic, "nobody", bytes("?")), millis);
            } catch (RequestTimeoutException expected) {
                late = true;
                Marked.line("late", expected.getResponseCode());
            } catch (MQClientException notEvenSent) {
                Marked.line("failed", notEvenSent.toString());  // a busy machine
            }
        }

        DefaultMQAdminExt admin = Connected.to(server, new DefaultMQAdminExt(Connected.PATIENCE_MS));
        admin.start();
        List<String> found = new ArrayList<>();
        for (String key : options.get("keys").split(",")) {
            found.add(text(byKey(admin, topic, key)));
        }
        Marked.line("found", found);
        Marked.line("trace", text(byKey(admin, options.get("traces"), options.get("traced"))));
        stopped.await();
        admin.shutdown();
        consumer.shutdown();
        producer.shutdown();
        System.exit(0);
    }

    private static MessageExt byKey(DefaultMQAdminExt admin, String topic, String key) throws Exception {
        while (true) {
            try {
                return admin.queryMessage(topic, key, 32, 0, Long.MAX_VALUE).getMessageList().get(0);
            } catch (MQClientException notYet) {  // the index follows the log
                Thread.sleep(50);
            }
        }
    }

    private static String text(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
