import java.nio.ByteBuffer;
import java.time.Instant;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** Consumes messages of a topic with Apache's client; the same as consume.py, which says what. */
final class Consume {
    private static final CountDownLatch done = new CountDownLatch(1);
    private static Meter meter;

    private interface Meter {
        void see(List<MessageExt> messages);

        String figures();
    }

    /** Messages a second; touches each body. */
    private static final class Rate implements Meter {
        private final AtomicLong seen = new AtomicLong();
        private final long count;
        private volatile long first;
        private volatile long last;

        Rate(long count) {
            this.count = count;
        }

        @Override
        public void see(List<MessageExt> messages) {
            long bytes = 0;
            for (MessageExt message : messages) {
                bytes += message.getBody().length;
            }
            if (bytes == 0) {
                return;
            }
            long now = seen.addAndGet(messages.size());
            if (now == messages.size()) {
                first = System.nanoTime();
            }
            if (now >= count && done.getCount() > 0) {
                last = System.nanoTime();
                done.countDown();
            }
        }

        @Override
        public String figures() {
            return String.valueOf(count / ((last - first) / 1e9));
        }
    }

    /** The time from a send to here. */
    private static final class Latency implements Meter {
        private final long[] waits;
        private int seen;

        Latency(int count) {
            waits = new long[count];
        }

        @Override
        public synchronized void see(List<MessageExt> messages) {
            Instant time = Instant.now();
            long now = time.getEpochSecond() * 1_000_000_000L + time.getNano();
            for (MessageExt message : messages) {
                if (seen < waits.length) {
                    waits[seen++] = now - ByteBuffer.wrap(message.getBody()).getLong();
                }
            }
            if (seen == waits.length) {
                done.countDown();
            }
        }

        @Override
        public synchronized String figures() {
            long[] late = Arrays.copyOfRange(waits, waits.length / 2, waits.length);
            Arrays.sort(late);
            return late[late.length * 50 / 100] / 1e3 + " " + late[late.length * 99 / 100] / 1e3;
        }
    }

    public static void main(String[] arguments) throws Exception {
        String nameServer = arguments[2], topic = arguments[3], group = arguments[4];
        int count = Integer.parseInt(arguments[5]);
        boolean rate = arguments[0].equals("rate");
        meter = rate ? new Rate(count) : new Latency(count);
        if (arguments[1].equals("push")) {
            push(nameServer, topic, group, rate ? 32 : 1);
        } else {
            litePull(nameServer, topic, group);
        }
        System.out.println("@@ " + meter.figures());
        System.exit(0);
    }

    private static void push(String nameServer, String topic, String group, int batch)
        throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(batch);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            meter.see(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        done.await();
    }

    private static void litePull(String nameServer, String topic, String group)
        throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullBatchSize(32);
        consumer.subscribe(topic, "*");
        consumer.start();
        while (done.getCount() > 0) {
            List<MessageExt> messages = consumer.poll(1000);
            if (!messages.isEmpty()) {
                meter.see(messages);
            }
        }
    }
}
