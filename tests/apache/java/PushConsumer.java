import java.util.Collections;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Consumes `topic` with the tag expression `tags`, `mode` concurrent or orderly, `batch` messages a
 * call of the listener. With `failFirst=true` each message's first delivery is refused, so that it
 * comes again. Prints each delivery as a row [key, broker, queue, offset, tag, reconsume times, crc32];
 * what Share and Held print comes besides.
 */
final class PushConsumer {
    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = Marked.options(arguments);
        Received received = new Received(options.get("report"));
        String topic = options.get("topic");
        boolean orderly = options.get("mode").equals("orderly");
        DefaultMQPushConsumer consumer =
            Connected.to(options.get("nameServer"), new DefaultMQPushConsumer(options.get("group")));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        // Every 30 s by default: so long a new group's retry topic goes unseen, and so long the broker
        // refuses pulls (SUBSCRIPTION_NOT_LATEST) after a rebalance that collided with a heartbeat.
        consumer.setPollNameServerInterval(1_000);
        consumer.setHeartbeatBrokerInterval(1_000);
        consumer.setConsumeMessageBatchMaxSize(Integer.parseInt(options.get("batch")));
        consumer.subscribe(topic, options.get("tags"));
        consumer.setAllocateMessageQueueStrategy(new Share(topic));
        boolean failFirst = Boolean.parseBoolean(options.get("failFirst"));
        if (orderly) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                accept(messages, received, failFirst)
                    ? ConsumeOrderlyStatus.SUCCESS
                    : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                accept(messages, received, failFirst)
                    ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                    : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        }
        CountDownLatch stopped = Marked.stopped();
        Held.print(consumer.getDefaultMQPushConsumerImpl(), topic, orderly);
        consumer.start();
        Marked.line("ready", Collections.singletonMap("clientId", consumer.buildMQClientId()));
        stopped.await();
        consumer.shutdown();
        received.end();
        System.exit(0);
    }

    private static boolean accept(Iterable<MessageExt> messages, Received received, boolean failFirst) {
        boolean accepted = true;
        for (MessageExt message : messages) {
            received.add(message);
            accepted &= !failFirst || message.getReconsumeTimes() > 0;
        }
        return accepted;
    }
}
