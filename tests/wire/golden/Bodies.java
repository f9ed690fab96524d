import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONWriter;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.DataVersion;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.admin.TopicOffset;
import org.apache.rocketmq.remoting.protocol.admin.TopicStatsTable;
import org.apache.rocketmq.remoting.protocol.body.CheckClientRequestBody;
import org.apache.rocketmq.remoting.protocol.body.ClusterInfo;
import org.apache.rocketmq.remoting.protocol.body.ConsumerOffsetSerializeWrapper;
import org.apache.rocketmq.remoting.protocol.body.LockBatchRequestBody;
import org.apache.rocketmq.remoting.protocol.body.LockBatchResponseBody;
import org.apache.rocketmq.remoting.protocol.body.RegisterBrokerBody;
import org.apache.rocketmq.remoting.protocol.body.SubscriptionGroupWrapper;
import org.apache.rocketmq.remoting.protocol.body.TopicConfigSerializeWrapper;
import org.apache.rocketmq.remoting.protocol.body.UnlockBatchRequestBody;
import org.apache.rocketmq.remoting.protocol.filter.FilterAPI;
import org.apache.rocketmq.remoting.protocol.header.GetConsumerListByGroupResponseBody;
import org.apache.rocketmq.remoting.protocol.heartbeat.ConsumeType;
import org.apache.rocketmq.remoting.protocol.heartbeat.ConsumerData;
import org.apache.rocketmq.remoting.protocol.heartbeat.HeartbeatData;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.remoting.protocol.heartbeat.ProducerData;
import org.apache.rocketmq.remoting.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.remoting.protocol.route.QueueData;
import org.apache.rocketmq.remoting.protocol.route.TopicRouteData;
import org.apache.rocketmq.remoting.protocol.statictopic.TopicQueueMappingInfo;
import org.apache.rocketmq.remoting.protocol.subscription.ExponentialRetryPolicy;
import org.apache.rocketmq.remoting.protocol.subscription.GroupRetryPolicyType;
import org.apache.rocketmq.remoting.protocol.subscription.SimpleSubscriptionData;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;

/**
 * Prints what bodies.json holds for 5.5.0: the bodies as Apache's own classes encode them. Run with
 * java -cp "jars/*" Bodies.java. What it holds for 4.9.7 comes from the same program with 4.9's
 * package names and without what 4.9 does not have, and lists only what differs from 5.5.0. 5.3.3
 * gives the same as 5.5.0, but for forbiddenTable, which it does not know.
 */
public class Bodies {
    static final Map<String, String> OUT = new LinkedHashMap<>();

    static void put(String name, RemotingSerializable body) {
        OUT.put(name, new String(body.encode()));
    }

    static void put(String name, Object body) {
        OUT.put(name, new String(RemotingSerializable.encode(body)));
    }

    static DataVersion version(long state, long timestamp, long counter) {
        DataVersion version = new DataVersion();
        version.setStateVersion(state);
        version.setTimestamp(timestamp);
        version.setCounter(new AtomicLong(counter));
        return version;
    }

    static TopicOffset offset(long min, long max, long timestamp) {
        TopicOffset offset = new TopicOffset();
        offset.setMinOffset(min);
        offset.setMaxOffset(max);
        offset.setLastUpdateTimestamp(timestamp);
        return offset;
    }

    static BrokerData broker() {
        HashMap<Long, String> addresses = new HashMap<>();
        addresses.put(0L, "127.0.0.1:10911");
        addresses.put(1L, "127.0.0.2:10911");
        return new BrokerData("DefaultCluster", "broker-a", addresses);
    }

    public static void main(String[] args) throws Exception {
        routes();
        heartbeats();
        queues();
        registration();
        groups();
        administration();
        String json = JSON.toJSONString(OUT, JSONWriter.Feature.BrowserCompatible);
        System.out.println("GOLDEN " + json);
    }

    static void routes() {
        TopicRouteData route = new TopicRouteData();
        QueueData queues = new QueueData();
        queues.setBrokerName("broker-a");
        queues.setReadQueueNums(8);
        queues.setWriteQueueNums(4);
        queues.setPerm(6);
        route.getQueueDatas().add(queues);
        route.getBrokerDatas().add(broker());
        put("route", route);
        TopicQueueMappingInfo mapping = new TopicQueueMappingInfo("flights", 8, "broker-a", 5);
        mapping.getCurrIdMap().put(0, 3);
        Map<String, TopicQueueMappingInfo> mappings = new HashMap<>();
        mappings.put("broker-a", mapping);
        route.setOrderTopicConf("broker-a:4");
        route.setTopicQueueMappingByBroker(mappings);
        put("route_static", route);
        OUT.put("route_standard", standard(route));
    }

    /** As ClientRequestProcessor answers a request of version 4.9.4 or later. */
    static String standard(TopicRouteData route) {
        return JSON.toJSONString(route, JSONWriter.Feature.BrowserCompatible, JSONWriter.Feature.MapSortField);
    }

    static void heartbeats() throws Exception {
        HeartbeatData heartbeat = new HeartbeatData();
        heartbeat.setClientID("192.168.0.1@4711#1");
        ProducerData producer = new ProducerData();
        producer.setGroupName("orders");
        heartbeat.getProducerDataSet().add(producer);
        ConsumerData consumer = new ConsumerData();
        consumer.setGroupName("readers");
        consumer.setConsumeType(ConsumeType.CONSUME_PASSIVELY);
        consumer.setMessageModel(MessageModel.CLUSTERING);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        SubscriptionData tags = FilterAPI.buildSubscriptionData("flights", "TagA || TagB");
        tags.setSubVersion(1700000000123L);
        consumer.getSubscriptionDataSet().add(tags);
        heartbeat.getConsumerDataSet().add(consumer);
        heartbeat.setHeartbeatFingerprint(heartbeat.computeHeartbeatFingerprint());
        put("heartbeat", heartbeat);
        put("heartbeat_empty", new HeartbeatData());
        GetConsumerListByGroupResponseBody list = new GetConsumerListByGroupResponseBody();
        list.setConsumerIdList(Arrays.asList("a@1", "b@2"));
        put("consumer_list", list);
        CheckClientRequestBody check = new CheckClientRequestBody();
        check.setClientId("a@1");
        check.setGroup("readers");
        check.setSubscriptionData(tags);
        put("check_client", check);
    }

    static void queues() {
        MessageQueue queue = new MessageQueue("flights", "broker-a", 3);
        LockBatchRequestBody lock = new LockBatchRequestBody();
        lock.setConsumerGroup("readers");
        lock.setClientId("a@1");
        lock.setOnlyThisBroker(true);
        lock.getMqSet().add(queue);
        put("lock_request", lock);
        LockBatchResponseBody locked = new LockBatchResponseBody();
        locked.getLockOKMQSet().add(queue);
        put("lock_response", locked);
        UnlockBatchRequestBody unlock = new UnlockBatchRequestBody();
        unlock.setConsumerGroup("readers");
        unlock.setClientId("a@1");
        unlock.getMqSet().add(queue);
        put("unlock_request", unlock);
    }

    static void registration() {
        put("data_version", version(2, 1700000000456L, 7));
        TopicConfig topic = new TopicConfig("flights", 8, 4, 6);
        topic.getAttributes().put("+message.type", "NORMAL");
        put("topic_config", topic);
        TopicConfigSerializeWrapper table = new TopicConfigSerializeWrapper();
        table.getTopicConfigTable().put("flights", topic);
        table.setDataVersion(version(2, 1700000000456L, 7));
        put("topic_config_table", table);
        RegisterBrokerBody body = new RegisterBrokerBody();
        body.getTopicConfigSerializeWrapper().getTopicConfigTable().put("flights", topic);
        body.getTopicConfigSerializeWrapper().setDataVersion(version(2, 1700000000456L, 7));
        body.getTopicConfigSerializeWrapper().setMappingDataVersion(version(0, 1700000000789L, 1));
        body.getFilterServerList().add("127.0.0.1:9999");
        put("register_broker", body);
        OUT.put("register_broker_compressed", HexFormat.of().formatHex(body.encode(true)));
        TopicQueueMappingInfo mapping = new TopicQueueMappingInfo("flights", 8, "broker-a", 5);
        mapping.getCurrIdMap().put(0, 3);
        body.getTopicConfigSerializeWrapper().getTopicQueueMappingInfoMap().put("flights", mapping);
        OUT.put("register_broker_static_compressed", HexFormat.of().formatHex(body.encode(true)));
    }

    static void groups() {
        SubscriptionGroupConfig group = new SubscriptionGroupConfig();
        group.setGroupName("readers");
        put("subscription_group", group);
        SubscriptionGroupConfig retried = new SubscriptionGroupConfig();
        retried.setGroupName("writers");
        retried.getGroupRetryPolicy().setType(GroupRetryPolicyType.EXPONENTIAL);
        retried.getGroupRetryPolicy().setExponentialRetryPolicy(new ExponentialRetryPolicy(1000, 60000, 3));
        Set<SimpleSubscriptionData> subscriptions = new HashSet<>();
        subscriptions.add(new SimpleSubscriptionData("flights", "TAG", "*", 5));
        retried.setSubscriptionDataSet(subscriptions);
        put("subscription_group_full", retried);
        SubscriptionGroupWrapper groups = new SubscriptionGroupWrapper();
        groups.getSubscriptionGroupTable().put("readers", group);
        groups.setDataVersion(version(2, 1700000000456L, 7));
        put("subscription_group_table", groups);
        ConsumerOffsetSerializeWrapper offsets = new ConsumerOffsetSerializeWrapper();
        ConcurrentMap<Integer, Long> ofQueues = new ConcurrentHashMap<>();
        ofQueues.put(0, 5L);
        ofQueues.put(1, 6L);
        offsets.getOffsetTable().put("flights@readers", ofQueues);
        offsets.setDataVersion(version(2, 1700000000456L, 7));
        put("consumer_offsets", offsets);
    }

    static void administration() {
        ClusterInfo cluster = new ClusterInfo();
        HashMap<String, BrokerData> brokers = new HashMap<>();
        brokers.put("broker-a", broker());
        cluster.setBrokerAddrTable(brokers);
        HashMap<String, Set<String>> clusters = new HashMap<>();
        clusters.put("DefaultCluster", new HashSet<>(Arrays.asList("broker-a")));
        cluster.setClusterAddrTable(clusters);
        put("cluster_info", cluster);
        TopicStatsTable stats = new TopicStatsTable();
        stats.getOffsetTable().put(new MessageQueue("flights", "broker-a", 0), offset(0, 10, 1700000000000L));
        stats.getOffsetTable().put(new MessageQueue("flights", "broker-a", 1), offset(1, 11, 1700000000001L));
        put("topic_stats", stats);
    }
}
