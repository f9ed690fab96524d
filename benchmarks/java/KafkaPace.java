import java.nio.ByteBuffer;
import java.time.Instant;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Sends to Kafka at a steady rate, as paced.py does; each value begins with the time in ns. */
final class KafkaPace {
    private static final int BODY = 100;

    public static void main(String[] arguments) throws Exception {
        int messages = Integer.parseInt(arguments[2]);
        double seconds = Double.parseDouble(arguments[3]);
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("linger.ms", "0");
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties, bytes, bytes)) {
            int partitions = producer.partitionsFor(arguments[1]).size();
            long began = System.nanoTime();
            for (int i = 0; i < messages; i++) {
                long wait = began + (long) (i * seconds / messages * 1e9) - System.nanoTime();
                if (wait > 0) {
                    Thread.sleep(wait / 1_000_000, (int) (wait % 1_000_000));
                }
                Instant now = Instant.now();
                long time = now.getEpochSecond() * 1_000_000_000L + now.getNano();
                byte[] value = ByteBuffer.allocate(BODY).putLong(time).array();
                producer.send(new ProducerRecord<>(arguments[1], i % partitions, null, value));
            }
        }
    }
}
