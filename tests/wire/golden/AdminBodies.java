import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.message.MessageQueueForC;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.admin.ConsumeStats;
import org.apache.rocketmq.remoting.protocol.admin.OffsetWrapper;
import org.apache.rocketmq.remoting.protocol.body.Connection;
import org.apache.rocketmq.remoting.protocol.body.ConsumerConnection;
import org.apache.rocketmq.remoting.protocol.body.GetConsumerStatusBody;
import org.apache.rocketmq.remoting.protocol.body.GroupList;
import org.apache.rocketmq.remoting.protocol.body.ProducerConnection;
import org.apache.rocketmq.remoting.protocol.body.QuerySubscriptionResponseBody;
import org.apache.rocketmq.remoting.protocol.body.ResetOffsetBody;
import org.apache.rocketmq.remoting.protocol.body.ResetOffsetBodyForC;
import org.apache.rocketmq.remoting.protocol.filter.FilterAPI;
import org.apache.rocketmq.remoting.protocol.heartbeat.ConsumeType;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.remoting.protocol.heartbeat.SubscriptionData;

/**
 * Prints what admin_bodies.json holds for 5.5.0: the bodies as Apache's own classes encode them.
 * Run with java -cp "jars/*" AdminBodies.java. What it holds for 4.9.7 comes from the same program
 * with 4.9's package names and without what 4.9 does not have (pullOffset, 345).
 */
public class AdminBodies {
    static final Map<String, String> OUT = new LinkedHashMap<>();
    static final MessageQueue QUEUE = new MessageQueue("flights", "broker-a", 3);

    static void put(String name, RemotingSerializable body) {
        OUT.put(name, new String(body.encode()));
    }

    public static void main(String[] arguments) throws Exception {
        offsets();
        connections();
        progress();
        System.out.println("GOLDEN " + JSON.toJSONString(OUT, SerializerFeature.BrowserCompatible));
    }

    static void offsets() {
        ResetOffsetBody reset = new ResetOffsetBody();
        reset.setOffsetTable(Collections.singletonMap(QUEUE, 42L));
        put("reset_offset", reset);
        ResetOffsetBodyForC forC = new ResetOffsetBodyForC();
        forC.setOffsetTable(Arrays.asList(new MessageQueueForC("flights", "broker-a", 3, 42)));
        put("reset_offset_for_c", forC);
        GetConsumerStatusBody status = new GetConsumerStatusBody();
        status.getMessageQueueTable().put(QUEUE, 42L);
        put("consumer_status_of_one", status);
        GetConsumerStatusBody all = new GetConsumerStatusBody();
        all.getConsumerTable().put("a@1", Collections.singletonMap(QUEUE, 42L));
        put("consumer_status", all);
    }

    static Connection connection() {
        Connection connection = new Connection();
        connection.setClientId("a@1");
        connection.setClientAddr("127.0.0.1:4711");
        connection.setLanguage(LanguageCode.PYTHON);
        connection.setVersion(479);
        return connection;
    }

    static SubscriptionData subscription() throws Exception {
        SubscriptionData subscription = FilterAPI.buildSubscriptionData("flights", "*");
        subscription.setSubVersion(1700000000123L);
        return subscription;
    }

    static void connections() throws Exception {
        ConsumerConnection consumers = new ConsumerConnection();
        consumers.getConnectionSet().add(connection());
        consumers.getSubscriptionTable().put("flights", subscription());
        consumers.setConsumeType(ConsumeType.CONSUME_PASSIVELY);
        consumers.setMessageModel(MessageModel.CLUSTERING);
        consumers.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        put("consumer_connection", consumers);
        ProducerConnection producers = new ProducerConnection();
        producers.getConnectionSet().add(connection());
        put("producer_connection", producers);
    }

    static void progress() throws Exception {
        OffsetWrapper offsets = new OffsetWrapper();
        offsets.setBrokerOffset(100);
        offsets.setConsumerOffset(42);
        offsets.setPullOffset(60);
        offsets.setLastTimestamp(1700000000123L);
        ConsumeStats stats = new ConsumeStats();
        stats.getOffsetTable().put(QUEUE, offsets);
        put("consume_stats", stats);
        GroupList groups = new GroupList();
        groups.setGroupList(new HashSet<>(Arrays.asList("readers")));
        put("group_list", groups);
        QuerySubscriptionResponseBody subscribed = new QuerySubscriptionResponseBody();
        subscribed.setGroup("readers");
        subscribed.setTopic("flights");
        subscribed.setSubscriptionData(subscription());
        put("subscription", subscribed);
        subscribed.setSubscriptionData(null);
        put("subscription_none", subscribed);
    }
}
