import java.util.Collections;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Subscribes to `topic` by the SQL92 expression `sql`, as a push and as a lite pull consumer, and
 * prints each message's key as `pushed` or `polled`. Before, one starts with the expression `broken`:
 * `refused` says with which code and words that failed, null when it did not.
 */
final class SqlConsumers {
    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = Marked.options(arguments);
        Marked.line("refused", refusal(push(options, "broken")));
        DefaultMQPushConsumer pushed = push(options, "sql");
        pushed.start();
        DefaultLitePullConsumer polled =
            Connected.to(options.get("nameServer"), new DefaultLitePullConsumer("java-polled"));
        polled.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        polled.subscribe(options.get("topic"), MessageSelector.bySql(options.get("sql")));
        polled.start();
        CountDownLatch stopped = Marked.stopped();
        while (stopped.getCount() > 0) {
            for (MessageExt message : polled.poll(100)) {
                Marked.line("polled", message.getKeys());
            }
        }
        polled.shutdown();
        pushed.shutdown();
        System.exit(0);
    }

    private static DefaultMQPushConsumer push(Map<String, String> options, String expression) throws Exception {
        DefaultMQPushConsumer consumer =
            Connected.to(options.get("nameServer"), new DefaultMQPushConsumer("java-" + expression));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(options.get("topic"), MessageSelector.bySql(options.get(expression)));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> Marked.line("pushed", message.getKeys()));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        return consumer;
    }

    private static Object refusal(DefaultMQPushConsumer consumer) {
        try {
            consumer.start();
        } catch (MQClientException refused) {
            return new Object[] {refused.getResponseCode(), refused.getErrorMessage()};
        }
        consumer.shutdown();
        return Collections.emptyList();
    }
}
