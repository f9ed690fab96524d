import java.util.Collection;
import java.util.Collections;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Polls `topic`: `mode` subscribe (with the tag expression `tags`, queues shared with the group) or
 * assign (all queues, from their beginning). Commits at the end what it has polled, which Java's
 * shutdown() alone does not. Prints as PushConsumer does.
 */
final class LitePullConsumer {
    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = Marked.options(arguments);
        String topic = options.get("topic");
        Received received = new Received(options.get("report"));
        DefaultLitePullConsumer consumer =
            Connected.to(options.get("nameServer"), new DefaultLitePullConsumer(options.get("group")));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAllocateMessageQueueStrategy(new Share(topic));
        consumer.setPullBatchSize(Integer.parseInt(options.get("batch")));
        CountDownLatch stopped = Marked.stopped();
        Held.print(Held.field(consumer, "defaultLitePullConsumerImpl"), topic, false);
        if (options.get("mode").equals("assign")) {
            consumer.start();
            Collection<MessageQueue> queues = consumer.fetchMessageQueues(topic);
            consumer.assign(queues);
            for (MessageQueue queue : queues) {
                consumer.seekToBegin(queue);
            }
        } else {
            consumer.subscribe(topic, options.get("tags"));
            consumer.start();
        }
        Marked.line("ready", Collections.singletonMap("clientId", consumer.buildMQClientId()));
        while (stopped.getCount() > 0) {
            for (MessageExt message : consumer.poll(200)) {
                received.add(message);
            }
        }
        consumer.commitSync();
        consumer.shutdown();
        received.end();
        System.exit(0);
    }
}
