import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** Consumes `count` messages of a topic with Apache's client and prints how long that took. */
final class ConsumeRate {
    private static final AtomicLong seen = new AtomicLong();
    private static final CountDownLatch done = new CountDownLatch(1);
    private static volatile long first;
    private static volatile long last;

    public static void main(String[] arguments) throws Exception {
        String mode = arguments[0], nameServer = arguments[1], topic = arguments[2];
        String group = arguments[3];
        long count = Long.parseLong(arguments[4]);
        if (mode.equals("push")) {
            push(nameServer, topic, group, count);
        } else {
            litePull(nameServer, topic, group, count);
        }
        System.out.println("@@ " + (last - first) / 1e9);
        System.exit(0);
    }

    private static void count(List<MessageExt> messages, long count) {
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

    private static void push(String nameServer, String topic, String group, long count)
        throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(32);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            count(messages, count);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        done.await();
    }

    private static void litePull(String nameServer, String topic, String group, long count)
        throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullBatchSize(32);
        consumer.subscribe(topic, "*");
        consumer.start();
        while (done.getCount() > 0) {
            count(consumer.poll(1000), count);
        }
    }
}
