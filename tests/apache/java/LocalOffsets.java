import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.store.LocalFileOffsetStore;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * LocalFileOffsetStore over a directory: what it loads of a file that is there, and what it makes of
 * it once each offset is one more and there is a new queue. Arguments: directory, client id, group.
 */
public final class LocalOffsets {
    public static void main(String[] arguments) throws Exception {
        System.setProperty("rocketmq.client.localOffsetStoreDir", arguments[0]);
        MQClientInstance instance = new MQClientInstance(new ClientConfig(), 0, arguments[1]);
        LocalFileOffsetStore store = new LocalFileOffsetStore(instance, arguments[2]);
        store.load();
        Map<String, Object> loaded = new HashMap<>();
        for (Map.Entry<MessageQueue, Long> entry : store.cloneOffsetTable(null).entrySet()) {
            loaded.put(entry.getKey().toString(), entry.getValue());
            store.updateOffset(entry.getKey(), entry.getValue() + 1, false);
        }
        Marked.line("loaded", loaded);
        store.updateOffset(new MessageQueue("bills", "broker-b", 7), 1L << 40, false);
        store.persistAll(new HashSet<>(store.cloneOffsetTable(null).keySet()));
        Path file = Path.of(arguments[0], arguments[1], arguments[2], "offsets.json");
        Map<String, Object> written = new HashMap<>();
        written.put("text", Files.readString(file));
        Marked.line("written", written);
        System.exit(0);
    }
}
