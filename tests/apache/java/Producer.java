import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collections;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;

/**
 * Sends `count` messages with keys `prefix` + number from `first` on, bodies beginning with the key
 * and filled up to `size` bytes, tags taken in turn from `tags`, sharding keys `s0`... when
 * `shards` > 0. `inFlight` 0 sends one after another (and keeps the order within a shard); more
 * sends asynchronously. Prints `sent` rows [key, broker, queue, offset], `failed` texts, `done`.
 */
final class Producer {
    private final DefaultMQProducer producer;
    private final Marked sent;
    private final AtomicLong failures = new AtomicLong();

    private Producer(DefaultMQProducer producer, Marked sent) {
        this.producer = producer;
        this.sent = sent;
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = Marked.options(arguments);
        DefaultMQProducer producer =
            Connected.to(options.get("nameServer"), new DefaultMQProducer(options.get("group")));
        producer.setSendMsgTimeout(Connected.PATIENCE_MS);
        producer.start();
        CountDownLatch stopped = Marked.stopped();
        Marked.line("ready", Collections.emptyMap());
        new Producer(producer, new Marked("sent", options.get("report").equals("count")))
            .run(options, stopped);
        producer.shutdown();
        System.exit(0);
    }

    private void run(Map<String, String> options, CountDownLatch stopped) throws Exception {
        int first = Integer.parseInt(options.get("first"));
        int end = first + Integer.parseInt(options.get("count"));
        int inFlight = Integer.parseInt(options.get("inFlight"));
        Semaphore window = new Semaphore(Math.max(inFlight, 1));
        long begin = System.nanoTime();
        for (int i = first; i < end && stopped.getCount() > 0; i++) {
            Message message = message(options, i);
            window.acquire();
            send(message, inFlight > 0, new Callback(message.getKeys(), window));
        }
        window.acquire(Math.max(inFlight, 1));
        long millis = (System.nanoTime() - begin) / 1_000_000;
        Marked.line("done", Map.of("sent", sent.flush(), "failed", failures.get(), "ms", millis));
    }

    private static Message message(Map<String, String> options, int i) {
        String key = options.get("prefix") + i;
        byte[] body = new byte[Math.max(Integer.parseInt(options.get("size")), key.length())];
        Arrays.fill(body, (byte) '.');
        byte[] head = key.getBytes(StandardCharsets.UTF_8);
        System.arraycopy(head, 0, body, 0, head.length);
        String[] tags = options.get("tags").split(",");
        Message message = new Message(options.get("topic"), tags[i % tags.length], key, body);
        int shards = Integer.parseInt(options.get("shards"));
        if (shards > 0) {
            MessageAccessor.putProperty(message, "__SHARDINGKEY", "s" + i % shards);
        }
        return message;
    }

    private void send(Message message, boolean async, Callback callback) {
        String shard = message.getProperty("__SHARDINGKEY");
        MessageQueueSelector selector = new SelectMessageQueueByHash();
        try {
            if (async && shard == null) {
                producer.send(message, callback);
            } else if (async) {
                producer.send(message, selector, shard, callback);
            } else if (shard == null) {
                callback.onSuccess(producer.send(message));
            } else {
                callback.onSuccess(producer.send(message, selector, shard));
            }
        } catch (Exception failure) {
            callback.onException(failure);
        }
    }

    private final class Callback implements SendCallback {
        private final String key;
        private final Semaphore window;

        Callback(String key, Semaphore window) {
            this.key = key;
            this.window = window;
        }

        @Override
        public void onSuccess(SendResult result) {
            sent.add(key, result.getMessageQueue().getBrokerName(),
                result.getMessageQueue().getQueueId(), result.getQueueOffset());
            window.release();
        }

        @Override
        public void onException(Throwable failure) {
            failures.incrementAndGet();
            Marked.line("failed", key + ": " + failure);
            window.release();
        }
    }
}
