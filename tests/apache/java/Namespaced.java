import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.NamespaceUtil;

/**
 * A producer, a push and a lite pull consumer in `namespace`. Prints as `names` what NamespaceUtil
 * makes of `names`, as `sent` where `count` messages went, and as `pushed` and `polled` what came:
 * topic, key, reconsumeTimes. The first delivery of each message to the listener fails.
 */
final class Namespaced {
    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = Marked.options(arguments);
        String namespace = options.get("namespace");
        String server = options.get("nameServer");
        String topic = options.get("topic");
        CountDownLatch stopped = Marked.stopped();
        names(namespace, options.get("names").split(","));

        DefaultMQProducer producer = Connected.to(server, new DefaultMQProducer("java-producers"));
        producer.setNamespace(namespace);
        producer.setSendMsgTimeout(Connected.PATIENCE_MS);
        producer.start();
        for (int number = 0; number < Integer.parseInt(options.get("count")); number++) {
            Message message = new Message(topic, "TagA", "java" + number, new byte[] {1});
            SendResult result = producer.send(message);
            Marked.line("sent", Arrays.asList(result.getMessageQueue().getTopic(), message.getTopic()));
        }

        Set<String> failed = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer push = Connected.to(server, new DefaultMQPushConsumer("java-push"));
        push.setNamespace(namespace);
        push.setPollNameServerInterval(1_000);
        push.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        push.subscribe(topic, "*");
        push.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            print("pushed", message);
            context.setDelayLevelWhenNextConsume(1);
            return failed.add(message.getKeys())
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        push.start();

        DefaultLitePullConsumer lite = Connected.to(server, new DefaultLitePullConsumer("mixed"));
        lite.setNamespace(namespace);
        lite.setPollNameServerInterval(1_000);
        lite.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        lite.subscribe(topic, "*");
        lite.start();
        Marked.line("ready", Collections.emptyMap());
        while (stopped.getCount() > 0) {
            for (MessageExt message : lite.poll(100)) {
                print("polled", message);
            }
            Marked.line("queues", lite.assignment().size());
        }
        lite.commitSync();
        lite.shutdown();
        push.shutdown();
        producer.shutdown();
        System.exit(0);
    }

    private static void names(String namespace, String[] names) {
        List<Object> answers = new ArrayList<>();
        for (String name : names) {
            String wire = NamespaceUtil.wrapNamespace(namespace, name);
            answers.add(Arrays.asList(name, wire, NamespaceUtil.withoutNamespace(name, namespace)));
        }
        Marked.line("names", answers);
    }

    private static void print(String kind, MessageExt message) {
        Marked.line(kind, Arrays.asList(message.getTopic(), message.getKeys(), message.getReconsumeTimes()));
    }
}
