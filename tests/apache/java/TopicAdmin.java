import com.alibaba.fastjson.JSON;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Makes, changes, lists and deletes topics, groups, keys and values by Apache's DefaultMQAdminExt,
 * one broker's: a line `step` says of each call what came of it. What only 5.x has goes by
 * reflection, and is left out with 4.9.
 */
final class TopicAdmin {
    private static final String ORDER = "ORDER_TOPIC_CONFIG";
    private static final long TIMEOUT_MS = 30_000;

    private final DefaultMQAdminExt admin;
    private final String nameServer;
    private final String broker;
    private final String cluster;
    private final String topic;
    private final String group;
    private final boolean isNew;

    private TopicAdmin(DefaultMQAdminExt admin, Map<String, String> options) {
        this.admin = admin;
        nameServer = options.get("nameServer");
        broker = options.get("broker");
        cluster = options.get("cluster");
        topic = options.get("topic");
        group = topic + "-group";
        isNew = Arrays.stream(TopicConfig.class.getMethods()).anyMatch(one -> one.getName().equals("setAttributes"));
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = Marked.options(arguments);
        DefaultMQAdminExt admin =
            Connected.to(options.get("nameServer"), new DefaultMQAdminExt(Connected.PATIENCE_MS));
        admin.start();
        TopicAdmin program = new TopicAdmin(admin, options);
        program.topics();
        program.groups();
        program.keysAndValues();
        program.permissions();
        if (program.isNew) {
            program.newer();
        }
        program.deletions();
        Marked.line("done", true);
        admin.shutdown();
        System.exit(0);
    }

    private interface Call {
        Object call() throws Exception;
    }

    /** What a call returned, or the code it was refused with. */
    private void step(String name, Call call) throws Exception {
        Object outcome;
        try {
            outcome = call.call();
        } catch (InvocationTargetException wrapped) {
            outcome = refusal(wrapped.getCause());
        } catch (MQClientException | MQBrokerException refused) {
            outcome = refusal(refused);
        }
        Marked.line("step", new Object[] {name, outcome});
    }

    private static Object refusal(Throwable error) throws Exception {
        if (error instanceof MQBrokerException) {
            return "refused " + ((MQBrokerException) error).getResponseCode();
        }
        if (error instanceof MQClientException) {
            return "refused " + ((MQClientException) error).getResponseCode();
        }
        throw new IllegalStateException(error);
    }

    private Object newer(String method, Object... arguments) throws Exception {
        for (Method candidate : DefaultMQAdminExt.class.getMethods()) {
            if (candidate.getName().equals(method) && candidate.getParameterCount() == arguments.length) {
                return candidate.invoke(admin, arguments);
            }
        }
        throw new NoSuchMethodException(method);
    }

    private TopicConfig config(String name, int read, int write, int perm, String... attributes) throws Exception {
        TopicConfig config = new TopicConfig(name, read, write, perm);
        if (attributes.length > 0) {
            Map<String, String> changes = new HashMap<>();
            for (int at = 0; at < attributes.length; at += 2) {
                changes.put(attributes[at], attributes[at + 1]);
            }
            TopicConfig.class.getMethod("setAttributes", Map.class).invoke(config, changes);
        }
        return config;
    }

    private Object make(TopicConfig config) throws Exception {
        admin.createAndUpdateTopicConfig(broker, config);
        return shown(config.getTopicName());
    }

    private Object shown(String name) throws Exception {
        return JSON.parse(JSON.toJSONString(admin.getAllTopicConfig(broker, TIMEOUT_MS).getTopicConfigTable().get(name)));
    }

    private Object route() throws Exception {
        List<Object> queues = new ArrayList<>();
        admin.examineTopicRouteInfo(topic).getQueueDatas().forEach(data -> queues.add(new Object[] {
            data.getBrokerName(), data.getReadQueueNums(), data.getWriteQueueNums(), data.getPerm()}));
        return queues;
    }

    private void topics() throws Exception {
        step("topic made", () -> make(config(topic, 4, 4, 6)));
        step("route", this::route);
        step("topic changed", () -> make(config(topic, 8, 2, 4)));
        step("route changed", this::route);
        step("topic as before", () -> make(config(topic, 4, 4, 6)));
        step("topic of the broker", () -> make(config("TBW102", 1, 1, 6)));
        step("topic that cannot be", () -> make(config("a b", 1, 1, 6)));
        step("in cluster", () -> admin.fetchTopicsByCLuster(cluster).getTopicList().contains(topic));
        step("in all", () -> admin.fetchAllTopicList().getTopicList().contains(topic));
        if (!isNew) {
            return;
        }
        step("typed", () -> make(config(topic, 4, 4, 6, "+message.type", "FIFO", "+reserve.time", "5")));
        step("type changed", () -> make(config(topic, 4, 4, 6, "+message.type", "DELAY", "-reserve.time", "")));
        step("type removed", () -> make(config(topic, 4, 4, 6, "-message.type", "")));
        step("type not there", () -> make(config(topic, 4, 4, 6, "-message.type", "")));
        step("type unknown", () -> make(config(topic, 4, 4, 6, "+message.type", "SOME")));
        step("type mixed", () -> make(config(topic, 4, 4, 6, "+message.type", "MIXED")));
        step("attribute unknown", () -> make(config(topic, 4, 4, 6, "+nope", "x")));
        step("attribute fixed", () -> make(config(topic, 4, 4, 6, "+queue.type", "SimpleCQ")));
        step("list", () -> {
            newer("createAndUpdateTopicConfigList", broker,
                Arrays.asList(config(topic + "-1", 1, 1, 6), config(topic + "-2", 2, 2, 6, "+message.type", "FIFO")));
            return new Object[] {shown(topic + "-1"), shown(topic + "-2")};
        });
    }

    private Object group(String name) throws Exception {
        return JSON.parse(JSON.toJSONString(
            admin.getAllSubscriptionGroup(broker, TIMEOUT_MS).getSubscriptionGroupTable().get(name)));
    }

    private void groups() throws Exception {
        var config = admin.getAllSubscriptionGroup(broker, TIMEOUT_MS).getSubscriptionGroupTable().get("TOOLS_CONSUMER");
        config.setGroupName(group);
        config.setRetryMaxTimes(3);
        config.setConsumeBroadcastEnable(false);
        step("group made", () -> {
            admin.createAndUpdateSubscriptionGroupConfig(broker, config);
            return group(group);
        });
        config.setConsumeEnable(false);
        step("group changed", () -> {
            admin.createAndUpdateSubscriptionGroupConfig(broker, config);
            return group(group);
        });
        config.setGroupName("a b");
        step("group that cannot be", () -> {
            admin.createAndUpdateSubscriptionGroupConfig(broker, config);
            return null;
        });
        if (isNew) {
            config.setGroupName(group);
            config.getClass().getMethod("setAttributes", Map.class).invoke(config, Map.of("+nope", "x"));
            step("group attribute", () -> {
                admin.createAndUpdateSubscriptionGroupConfig(broker, config);
                return null;
            });
        }
    }

    private void keysAndValues() throws Exception {
        step("no key", () -> admin.getKVConfig(topic, "k"));
        step("key", () -> {
            admin.createAndUpdateKvConfig(topic, "k", "v=1;w");
            return admin.getKVConfig(topic, "k");
        });
        step("keys", () -> new TreeMap<>(admin.getKVListByNamespace(topic).getTable()));
        step("key deleted", () -> {
            admin.deleteKvConfig(topic, "k");
            return admin.getKVConfig(topic, "k");
        });
        step("no keys", () -> new TreeMap<>(admin.getKVListByNamespace(topic).getTable()));
        step("no namespace", () -> admin.getKVListByNamespace(topic + "-none").getTable());
        step("order", () -> {
            admin.createOrUpdateOrderConf(topic, "broker-a:4", true);
            return admin.getKVConfig(ORDER, topic);
        });
        step("order added", () -> {
            admin.createOrUpdateOrderConf(topic, "broker-x:8", false);
            return admin.getKVConfig(ORDER, topic).contains("broker-x:8");
        });
        step("order deleted", () -> {
            admin.deleteKvConfig(ORDER, topic);
            return admin.getKVConfig(ORDER, topic);
        });
    }

    private void permissions() throws Exception {
        step("wiped", () -> admin.wipeWritePermOfBroker(nameServer, "broker-a") > 0);
        step("route wiped", this::route);
        step("added", () -> admin.addWritePermOfBroker(nameServer, "broker-a") > 0);
        step("route added", this::route);
        step("wiped nobody", () -> admin.wipeWritePermOfBroker(nameServer, "nobody"));
    }

    private void newer() throws Exception {
        for (Boolean readable : new Boolean[] {false, null, true}) {
            step("readable " + readable, () -> {
                Object forbidden = newer("updateAndGetGroupReadForbidden", broker, group, topic, readable);
                return JSON.parse(JSON.toJSONString(forbidden));
            });
        }
        step("ha", () -> {
            Object status = newer("getBrokerHAStatus", broker);
            return status.getClass().getMethod("isMaster").invoke(status);
        });
        step("cold", () -> {
            Properties limits = new Properties();
            limits.setProperty(group, "1000");
            newer("updateColdDataFlowCtrGroupConfig", broker, limits);
            String told = (String) newer("getColdDataFlowCtrInfo", broker);
            newer("removeColdDataFlowCtrGroupConfig", broker, group);
            return JSON.parse(told);
        });
        step("cold removed", () -> JSON.parse((String) newer("getColdDataFlowCtrInfo", broker)));
        for (String mode : new String[] {"1", "0", "7"}) {
            step("read ahead " + mode, () -> newer("setCommitLogReadAheadMode", broker, mode));
        }
        Class<?> modes = Class.forName("org.apache.rocketmq.common.message.MessageRequestMode");
        for (String name : new String[] {topic, topic + "-none", "%RETRY%" + group}) {
            step("mode", () -> {
                newer("setMessageRequestMode", broker, name, group, modes.getField("PULL").get(null), 0, TIMEOUT_MS);
                return true;
            });
        }
    }

    private void deletions() throws Exception {
        step("cleaned queues", () -> admin.cleanExpiredConsumerQueueByAddr(broker));
        step("cleaned topics", () -> admin.cleanUnusedTopicByAddr(broker));
        step("cleaned log", () -> admin.deleteExpiredCommitLogByAddr(broker));
        Set<String> brokers = new HashSet<>(List.of(broker));
        List<String> made = isNew ? List.of(topic, topic + "-1", topic + "-2") : List.of(topic);
        for (String name : made) {
            step("topic deleted", () -> {
                admin.deleteTopicInBroker(brokers, name);
                return shown(name);
            });
            step("route deleted", () -> {
                Set<String> servers = new HashSet<>(List.of(nameServer));
                if (isNew) {
                    newer("deleteTopicInNameServer", servers, name);
                } else {
                    admin.deleteTopicInNameServer(servers, name, cluster);
                }
                return admin.examineTopicRouteInfo(name).getQueueDatas().size();
            });
        }
        step("own topic deleted", () -> {
            admin.deleteTopicInBroker(brokers, "BenchmarkTest");
            return null;
        });
        step("group deleted", () -> {
            admin.deleteSubscriptionGroup(broker, group, true);
            return group(group);
        });
    }
}
