import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** Sends messages with Apache's client; the same as produce.py, which says what. */
final class Produce {
    private static final byte[] BODY = new byte[100];
    /** The compilers need some seconds, however short the measurement is. */
    private static final double WARM_UP_SECONDS = 4;
    private static final int PATIENCE_MS = 30_000;

    private interface Sending {
        long run(DefaultMQProducer producer, String topic, int width, double seconds) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        Sending sending = arguments[0].equals("blocking") ? Produce::blocking : Produce::callback;
        String topic = arguments[2];
        int width = Integer.parseInt(arguments[3]);
        double seconds = Double.parseDouble(arguments[4]);
        DefaultMQProducer producer = new DefaultMQProducer("bench-producer");
        producer.setNamesrvAddr(arguments[1]);
        producer.setSendMsgTimeout(PATIENCE_MS);
        producer.start();
        producer.send(message(topic));
        sending.run(producer, topic, width, Math.max(seconds, WARM_UP_SECONDS));
        OperatingSystemMXBean process = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long began = System.nanoTime(), busy = process.getProcessCpuTime();
        long sent = sending.run(producer, topic, width, seconds);
        double took = (System.nanoTime() - began) / 1e9;
        double each = (process.getProcessCpuTime() - busy) / 1e3 / sent;
        System.out.println("@@ " + sent / took + " " + each);
        Runtime.getRuntime().halt(0);
    }

    private static Message message(String topic) {
        return new Message(topic, "tag", "key-0123456789", BODY);
    }

    private static long blocking(DefaultMQProducer producer, String topic, int threads, double seconds)
        throws Exception {
        long end = System.nanoTime() + (long) (seconds * 1e9);
        AtomicLong sent = new AtomicLong();
        Thread[] senders = new Thread[threads];
        for (int i = 0; i < threads; i++) {
            senders[i] = new Thread(() -> {
                try {
                    while (System.nanoTime() < end) {
                        producer.send(message(topic));
                        sent.incrementAndGet();
                    }
                } catch (Exception error) {
                    fail(error);
                }
            });
            senders[i].start();
        }
        for (Thread sender : senders) {
            sender.join();
        }
        return sent.get();
    }

    private static long callback(DefaultMQProducer producer, String topic, int width, double seconds)
        throws Exception {
        long end = System.nanoTime() + (long) (seconds * 1e9);
        AtomicLong sent = new AtomicLong();
        Semaphore room = new Semaphore(width);
        SendCallback count = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                sent.incrementAndGet();
                room.release();
            }

            @Override
            public void onException(Throwable error) {
                fail(error);
            }
        };
        while (System.nanoTime() < end) {
            room.acquire();
            producer.send(message(topic), count);
        }
        room.acquire(width);
        return sent.get();
    }

    private static void fail(Throwable error) {
        error.printStackTrace();
        Runtime.getRuntime().halt(1);
    }
}
