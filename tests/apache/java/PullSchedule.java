import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.MQPullConsumerScheduleService;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * MQPullConsumerScheduleService over `topic`: pulls each queue from the group's offset on, and moves
 * it. Prints how queue 0 answers pulls that bring nothing, as `statuses`; the rest as PushConsumer.
 */
final class PullSchedule {
    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = Marked.options(arguments);
        String topic = options.get("topic");
        Received received = new Received("messages");
        MQPullConsumerScheduleService service = new MQPullConsumerScheduleService(options.get("group"));
        DefaultMQPullConsumer consumer = service.getDefaultMQPullConsumer();
        Connected.to(options.get("nameServer"), consumer);
        consumer.setConsumerPullTimeoutMillis(Connected.PATIENCE_MS);
        Held.print(Held.field(consumer, "defaultMQPullConsumerImpl"), topic, false);
        CountDownLatch stopped = Marked.stopped();
        service.registerPullTaskCallback(topic, (queue, context) -> {
            try {
                long offset = Math.max(0, consumer.fetchConsumeOffset(queue, false));
                PullResult result = consumer.pull(queue, "*", offset, 8);
                if (result.getMsgFoundList() != null) {
                    for (MessageExt message : result.getMsgFoundList()) {
                        received.add(message);
                    }
                }
                consumer.updateConsumeOffset(queue, result.getNextBeginOffset());
                context.setPullNextDelayTimeMillis(20);
            } catch (Exception failure) {
                throw new IllegalStateException(failure);
            }
        });
        service.start();
        MessageQueue first = null;
        for (MessageQueue queue : queues(consumer, topic)) {
            first = queue.getQueueId() == 0 ? queue : first;
        }
        List<Object> statuses = new ArrayList<>();
        long end = consumer.maxOffset(first);
        for (PullResult result : new PullResult[] {
            consumer.pull(first, "*", end, 8),
            consumer.pull(first, "none", 0, 8),
            consumer.pull(first, "*", end + 10, 8),
        }) {
            statuses.add(result.getPullStatus() + " " + (result.getNextBeginOffset() - end));
        }
        Marked.line("statuses", statuses);
        stopped.await();
        service.shutdown();
        received.end();
        System.exit(0);
    }

    /** Asked again where 4.9 gave up after 3 s because another thread was just connecting. */
    private static Set<MessageQueue> queues(DefaultMQPullConsumer consumer, String topic) throws Exception {
        long end = System.currentTimeMillis() + Connected.PATIENCE_MS;
        while (true) {
            try {
                return consumer.fetchSubscribeMessageQueues(topic);
            } catch (MQClientException busy) {
                if (System.currentTimeMillis() > end) {
                    throw busy;
                }
                Thread.sleep(100);
            }
        }
    }
}
