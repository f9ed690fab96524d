import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.BooleanSupplier;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;

/** Holds queues, and is idle, with Apache's client; the same as holding.py, which says what. */
@SuppressWarnings("deprecation")
final class Holding {
    private static final long STEADY_AFTER_MS = 12_000;
    private static final int REPEATED = 20;

    public static void main(String[] arguments) throws Exception {
        String nameServer = arguments[1], topic = arguments[2], group = arguments[3];
        int count = Integer.parseInt(arguments[4]);
        long millis = (long) (Double.parseDouble(arguments[5]) * 1000);
        double[] figures = arguments[0].equals("queues")
            ? queues(nameServer, topic, group, count, millis)
            : idle(nameServer, topic, group, count, millis);
        StringBuilder line = new StringBuilder("@@");
        for (double figure : figures) {
            line.append(' ').append(figure);
        }
        System.out.println(line);
        Runtime.getRuntime().halt(0);
    }

    private static double[] queues(String nameServer, String topic, String group, int count, long millis)
        throws Exception {
        DefaultMQPushConsumer consumer = consumer(nameServer, topic, group);
        DefaultMQPushConsumer second = consumer(nameServer, topic, group);
        long memory = anonymousBytes();
        long began = System.nanoTime();
        consumer.start();
        await(() -> pulls(consumer, topic) == count);
        double first = (System.nanoTime() - began) / 1e9;
        double[] took = new double[REPEATED];
        for (int i = 0; i < REPEATED; i++) {
            long since = System.nanoTime();
            consumer.getDefaultMQPushConsumerImpl().doRebalance();
            took[i] = (System.nanoTime() - since) / 1e6;
        }
        Arrays.sort(took);
        double share = 0;
        if (millis > 0) {
            Thread.sleep(STEADY_AFTER_MS);
            long busy = processNanos(), since = System.nanoTime();
            Thread.sleep(millis);
            share = (processNanos() - busy) / (double) (System.nanoTime() - since);
        }
        memory = anonymousBytes() - memory;
        began = System.nanoTime();
        second.start();
        await(() -> pulls(second, topic) >= count / 2 && pulls(second, topic) + pulls(consumer, topic) == count);
        double joined = (System.nanoTime() - began) / 1e9;
        return new double[] {first, took[REPEATED / 2], joined, share * 100, memory / 1e3 / count};
    }

    private static double[] idle(String nameServer, String topic, String group, int count, long millis)
        throws Exception {
        double[] sizes = new double[2];
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (int part = 0; part < 2; part++) {
            for (int n = 0; n < (part == 0 ? 1 : count); n++) {
                DefaultMQPushConsumer consumer = consumer(nameServer, topic, group + "-" + part + "-" + n);
                consumer.start();
                consumers.add(consumer);
            }
            await(() -> consumers.stream().allMatch(consumer -> pulls(consumer, topic) > 0));
            Thread.sleep(millis);
            sizes[part] = anonymousBytes();
        }
        return new double[] {sizes[0] / 1e6, (sizes[1] - sizes[0]) / 1e3 / count};
    }

    private static DefaultMQPushConsumer consumer(String nameServer, String topic, String group)
        throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(
            (MessageListenerConcurrently) (messages, context) -> ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        return consumer;
    }

    private static long pulls(DefaultMQPushConsumer consumer, String topic) {
        return consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().entrySet().stream()
            .filter(entry -> entry.getKey().getTopic().equals(topic) && !entry.getValue().isDropped()).count();
    }

    private static void await(BooleanSupplier condition) throws InterruptedException {
        while (!condition.getAsBoolean()) {
            Thread.sleep(2);
        }
    }

    private static long processNanos() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
            .getProcessCpuTime();
    }

    private static long anonymousBytes() throws Exception {
        System.gc();
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("RssAnon")) {
                return Long.parseLong(line.replaceAll("\\D", "")) * 1024;
            }
        }
        throw new IllegalStateException("this system does not tell RssAnon");
    }
}
