import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageArrivingListener;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.index.IndexFile;
import org.apache.rocketmq.store.stats.BrokerStatsManager;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Key queries as Apache answers them: its IndexFile and its message store on a directory, and its
 * clients on a broker. Each line of stdin is a call, as in Admin.java. Classes that moved to another
 * package between 4.9 and 5 are found by reflection or left for the compiler to infer.
 */
final class KeyQueries {
    private static DefaultMessageStore store;
    private static DefaultMQAdminExt admin;
    private static DefaultMQProducer producer;

    public static void main(String[] arguments) throws Exception {
        Marked.exitOnFailure();
        Marked.line("ready", true);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null && !line.equals("stop"); line = in.readLine()) {
            try {
                Marked.line("answer", call(line.split(" ")));
            } catch (MQClientException refused) {
                Marked.line("refused", new Object[] {refused.getResponseCode(), refused.getErrorMessage()});
            } catch (MQBrokerException refused) {
                Marked.line("refused", new Object[] {refused.getResponseCode(), refused.getErrorMessage()});
            }
        }
        System.exit(0);
    }

    private static Object call(String[] words) throws Exception {
        switch (words[0]) {
            case "golden": // path slots entries count
                return golden(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]),
                    Integer.parseInt(words[4]));
            case "open": // directory logFileSize queueUnits slots entries
                return open(words);
            case "find": // topic key
                return find(words[1], words[2]);
            case "put": // topic key count
                return put(words[1], words[2], Integer.parseInt(words[3]));
            case "close":
                store.shutdown();
                return true;
            case "connect": // name server
                admin = Connected.to(words[1], new DefaultMQAdminExt(Connected.PATIENCE_MS));
                admin.start();
                producer = Connected.to(words[1], new DefaultMQProducer("queries"));
                producer.start();
                return true;
            case "query": // topic key
                return shown(admin.queryMessage(words[1], words[2], 32, 0, Long.MAX_VALUE));
            case "ask": // topic key, by the producer
                return shown(producer.queryMessage(words[1], words[2], 32, 0, Long.MAX_VALUE));
            case "view": // topic message id, offset or unique
                return row(admin.viewMessage(words[1], words[2]));
            case "entries": // broker topic queue index count group
                var body = admin.queryConsumeQueue(words[1], words[2], Integer.parseInt(words[3]),
                    Long.parseLong(words[4]), Integer.parseInt(words[5]), words[6]);
                List<Object> rows = new ArrayList<>();
                body.getQueueData().forEach(unit -> rows.add(new Object[] {
                    unit.getPhysicOffset(), unit.getPhysicSize(), unit.getTagsCode(), unit.isEval()}));
                return new Object[] {body.getMinQueueIndex(), body.getMaxQueueIndex(), body.getFilterData(), rows};
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static Object golden(String path, int slots, int entries, int count) throws Exception {
        IndexFile file = new IndexFile(path, slots, entries, 0, 0);
        int taken = 0;
        for (int number = 0; number < count; number++) {
            String key = number % 7 == 0 ? "Topic#schlüssel-" + number / 2 : "Topic#key-" + number / 3;
            if (file.putKey(key, number * 100L, 1_700_000_000_000L + number * 700L)) {
                taken++;
            }
        }
        file.flush();
        List<Long> found = new ArrayList<>();
        file.selectPhyOffset(found, "Topic#key-5", 32, 0, Long.MAX_VALUE);
        return new Object[] {taken, found};
    }

    private static Object open(String[] words) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(words[1]);
        config.setStorePathCommitLog(words[1] + File.separator + "commitlog");
        config.setMappedFileSizeCommitLog(Integer.parseInt(words[2]));
        config.setMappedFileSizeConsumeQueue(Integer.parseInt(words[3]) * 20);
        config.setMaxHashSlotNum(Integer.parseInt(words[4]));
        config.setMaxIndexNum(Integer.parseInt(words[5]));
        config.setHaListenPort(0);
        config.setDiskMaxUsedSpaceRatio(95);
        BrokerConfig broker = new BrokerConfig();
        broker.setLongPollingEnable(false);
        BrokerStatsManager stats = new BrokerStatsManager("cluster", false);
        for (Constructor<?> made : DefaultMessageStore.class.getConstructors()) {
            Object[] parts = {config, stats, (MessageArrivingListener) null, broker, new ConcurrentHashMap<>()};
            store = (DefaultMessageStore) made.newInstance(
                java.util.Arrays.copyOf(parts, made.getParameterCount()));
        }
        boolean loaded = store.load();
        store.start();
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(1);
        }
        return loaded;
    }

    private static Object find(String topic, String key) throws Exception {
        TreeSet<String> bodies = new TreeSet<>();
        var result = store.queryMessage(topic, key, 32, 0, Long.MAX_VALUE);
        for (ByteBuffer buffer : result.getMessageBufferList()) {
            MessageExt message = MessageDecoder.decode(buffer.slice());
            if (key.equals(message.getProperty("UNIQ_KEY")) || key.equals(message.getKeys())) {
                bodies.add(new String(message.getBody(), StandardCharsets.UTF_8));
            }
        }
        result.release();
        return bodies;
    }

    /** Stores count messages with keys prefix0, prefix1, ... and waits until they are indexed. */
    private static Object put(String topic, String prefix, int count) throws Exception {
        Class<?> inner;
        try {
            inner = Class.forName("org.apache.rocketmq.common.message.MessageExtBrokerInner");
        } catch (ClassNotFoundException older) {
            inner = Class.forName("org.apache.rocketmq.store.MessageExtBrokerInner");
        }
        List<String> statuses = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            MessageExt message = (MessageExt) inner.getConstructor().newInstance();
            message.setTopic(topic);
            message.setBody((prefix + number).getBytes(StandardCharsets.UTF_8));
            message.setKeys(prefix + number);
            message.setTags("Java");
            MessageAccessor.putProperty(message, "UNIQ_KEY", "U" + prefix + number);
            message.setBornTimestamp(System.currentTimeMillis());
            message.setBornHost(new java.net.InetSocketAddress("127.0.0.1", 1));
            message.setStoreHost(new java.net.InetSocketAddress("127.0.0.1", 2));
            inner.getMethod("setPropertiesString", String.class).invoke(
                message, MessageDecoder.messageProperties2String(message.getProperties()));
            Object result = DefaultMessageStore.class.getMethod("putMessage", inner).invoke(store, message);
            statuses.add(String.valueOf(result.getClass().getMethod("isOk").invoke(result)));
        }
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(1);
        }
        return new TreeSet<>(statuses);
    }

    private static Object shown(QueryResult result) {
        List<Object> rows = new ArrayList<>();
        result.getMessageList().forEach(message -> rows.add(row(message)));
        return new Object[] {result.getIndexLastUpdateTimestamp(), rows};
    }

    private static Object[] row(MessageExt message) {
        return new Object[] {message.getMsgId(), message.getKeys(), new String(message.getBody(), StandardCharsets.UTF_8)};
    }
}
