import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.Unpooled;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.common.BoundaryType;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.protocol.DataVersion;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.remoting.protocol.SerializeType;
import org.apache.rocketmq.remoting.protocol.body.CheckClientRequestBody;
import org.apache.rocketmq.remoting.protocol.body.LockBatchRequestBody;
import org.apache.rocketmq.remoting.protocol.body.LockBatchResponseBody;
import org.apache.rocketmq.remoting.protocol.body.RegisterBrokerBody;
import org.apache.rocketmq.remoting.protocol.body.UnlockBatchRequestBody;
import org.apache.rocketmq.remoting.protocol.header.CheckTransactionStateRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ConsumerSendMsgBackRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.EndTransactionRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.GetConsumerListByGroupRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.GetConsumerListByGroupResponseBody;
import org.apache.rocketmq.remoting.protocol.header.GetConsumerListByGroupResponseHeader;
import org.apache.rocketmq.remoting.protocol.header.GetEarliestMsgStoretimeRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.GetEarliestMsgStoretimeResponseHeader;
import org.apache.rocketmq.remoting.protocol.header.GetMaxOffsetRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.GetMaxOffsetResponseHeader;
import org.apache.rocketmq.remoting.protocol.header.GetMinOffsetRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.GetMinOffsetResponseHeader;
import org.apache.rocketmq.remoting.protocol.header.HeartbeatRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.LockBatchMqRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.NotifyConsumerIdsChangedRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.PullMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.PullMessageResponseHeader;
import org.apache.rocketmq.remoting.protocol.header.QueryConsumerOffsetRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.QueryConsumerOffsetResponseHeader;
import org.apache.rocketmq.remoting.protocol.header.SearchOffsetRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.SearchOffsetResponseHeader;
import org.apache.rocketmq.remoting.protocol.header.SendMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.SendMessageRequestHeaderV2;
import org.apache.rocketmq.remoting.protocol.header.SendMessageResponseHeader;
import org.apache.rocketmq.remoting.protocol.header.UnlockBatchMqRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.UnregisterClientRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.UpdateConsumerOffsetRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.namesrv.GetRouteInfoRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.namesrv.QueryDataVersionRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.namesrv.QueryDataVersionResponseHeader;
import org.apache.rocketmq.remoting.protocol.header.namesrv.RegisterBrokerRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.namesrv.RegisterBrokerResponseHeader;
import org.apache.rocketmq.remoting.protocol.header.namesrv.UnRegisterBrokerRequestHeader;
import org.apache.rocketmq.remoting.protocol.heartbeat.ConsumeType;
import org.apache.rocketmq.remoting.protocol.heartbeat.ConsumerData;
import org.apache.rocketmq.remoting.protocol.heartbeat.HeartbeatData;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.remoting.protocol.heartbeat.ProducerData;
import org.apache.rocketmq.remoting.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.remoting.protocol.route.QueueData;
import org.apache.rocketmq.remoting.protocol.route.TopicRouteData;

/**
 * Prints, as `command` lines, the frames which the real classes write for the requests and responses
 * of clients, brokers and name servers, each with a JSON and with a binary header, beside the values
 * they were made from. Time stamps and request ids are fixed, so that every run prints the same.
 */
final class GoldenCommands {
    private static final String GROUP = "golden-group";
    private static final String TOPIC = "golden-topic";
    private static final String BROKER = "broker-a";
    private static final String ADDRESS = "127.0.0.1:10911";
    private static final String CLUSTER = "DefaultCluster";
    private static final long TIME = 1_700_000_000_123L;
    private static final String UNIQUE_ID = "7F0000011F904E5B6A8D0000ABCD0001";
    private static final String OFFSET_ID = "7F00000100002A9F0000000000001234";
    private static final String CLIENT = "192.168.0.1@4711#123456789";
    private static final String ODD_TEXT =
        "Ünïcode 消息 \uD83D\uDE80 \"quoted\" back\\slash / \t\n\u0001\u007F\u2028 <a&b>";
    private static final byte[] NO_BODY = null;

    private static int opaque = 100;

    public static void main(String[] arguments) throws Exception {
        sends();
        pulls();
        offsets();
        groups();
        locks();
        transactions();
        nameServer();
        Marked.line("done", opaque - 100);
        System.exit(0);
    }

    private static void sends() throws Exception {
        Map<String, Object> full = fields("producerGroup", GROUP, "topic", TOPIC, "defaultTopic", "TBW102",
            "defaultTopicQueueNums", 4, "queueId", 3, "sysFlag", 1, "bornTimestamp", TIME, "flag", 7,
            "properties", "KEYS\u0001k1 k2\u0002TAGS\u0001TagA\u0002city\u0001北京\u0002UNIQ_KEY\u0001"
                + UNIQUE_ID + "\u0002WAIT\u0001true\u0002",
            "reconsumeTimes", 2, "unitMode", false, "maxReconsumeTimes", 16, "batch", false, "bname", BROKER);
        SendMessageRequestHeader v1 = fill(new SendMessageRequestHeader(), full);
        byte[] body = "a body, not JSON: \u0000\u0001 消".getBytes(StandardCharsets.UTF_8);
        request("send", RequestCode.SEND_MESSAGE, v1, body);
        request("send v2",
            RequestCode.SEND_MESSAGE_V2, SendMessageRequestHeaderV2.createSendMessageRequestHeaderV2(v1), body);
        oneway("send v2, one-way",
            RequestCode.SEND_MESSAGE_V2, SendMessageRequestHeaderV2.createSendMessageRequestHeaderV2(v1), body);
        SendMessageRequestHeader least = fill(new SendMessageRequestHeader(), fields("producerGroup", GROUP,
            "topic", TOPIC, "defaultTopic", "TBW102", "defaultTopicQueueNums", 4, "queueId", 0,
            "sysFlag", 0, "bornTimestamp", TIME, "flag", 0));
        request("send v2, optional fields null", RequestCode.SEND_MESSAGE_V2,
            SendMessageRequestHeaderV2.createSendMessageRequestHeaderV2(least), new byte[0]);
        v1.setBatch(true);
        Message first = new Message(TOPIC, "TagA", "b1", "one".getBytes(StandardCharsets.UTF_8));
        Message second = new Message(TOPIC, "TagB", "b2", "two".getBytes(StandardCharsets.UTF_8));
        second.setFlag(5);
        request("send batch",
            RequestCode.SEND_BATCH_MESSAGE, SendMessageRequestHeaderV2.createSendMessageRequestHeaderV2(v1),
            MessageDecoder.encodeMessages(Arrays.asList(first, second)));

        response("sent", ResponseCode.SUCCESS, null,
            header(new SendMessageResponseHeader(), "msgId", OFFSET_ID, "queueId", 3, "queueOffset", 41L),
            NO_BODY, "MSG_REGION", "DefaultRegion", "TRACE_ON", "true");
        response("sent, with all fields", ResponseCode.FLUSH_DISK_TIMEOUT, null,
            header(new SendMessageResponseHeader(), "msgId", OFFSET_ID, "queueId", 0,
                "queueOffset", Long.MAX_VALUE, "transactionId", UNIQUE_ID, "batchUniqId", UNIQUE_ID,
                "recallHandle", "djEgdG9waWM="),
            NO_BODY);
        response("refused with a remark", ResponseCode.SYSTEM_ERROR, ODD_TEXT,
            new SendMessageResponseHeader(), NO_BODY);
    }

    private static void pulls() throws Exception {
        CommandCustomHeader full = header(new PullMessageRequestHeader(), "consumerGroup", GROUP, "topic", TOPIC,
            "queueId", 3, "queueOffset", 4711L, "maxMsgNums", 32, "sysFlag", 7, "commitOffset", 4700L,
            "suspendTimeoutMillis", 15000L, "subscription", "TagA || Tag消", "subVersion", TIME,
            "expressionType", "TAG", "maxMsgBytes", 262144, "bname", BROKER);
        CommandCustomHeader least = header(new PullMessageRequestHeader(), "consumerGroup", GROUP, "topic", TOPIC,
            "queueId", 0, "queueOffset", 0L, "maxMsgNums", 1, "sysFlag", 2, "commitOffset", 0L,
            "suspendTimeoutMillis", 0L, "subVersion", 0L);
        request("pull", RequestCode.PULL_MESSAGE, full, NO_BODY);
        request("pull, optional fields null", RequestCode.PULL_MESSAGE, least, NO_BODY);
        request("lite pull", RequestCode.LITE_PULL_MESSAGE, full, NO_BODY);
        CommandCustomHeader answer = header(new PullMessageResponseHeader(), "suggestWhichBrokerId", 0L,
            "nextBeginOffset", 4743L, "minOffset", 17L, "maxOffset", 5000L,
            "offsetDelta", 0L, "topicSysFlag", 0, "groupSysFlag", 0);
        response("found", ResponseCode.SUCCESS, "FOUND", answer,
            new byte[] {0, 0, 0, 8, (byte) 0xDA, (byte) 0xA3});
        CommandCustomHeader bare = header(new PullMessageResponseHeader(), "suggestWhichBrokerId", 1L,
            "nextBeginOffset", 17L, "minOffset", 17L, "maxOffset", -1L);
        response("not found", ResponseCode.PULL_NOT_FOUND, null, bare, NO_BODY);
        response("retry immediately", ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE", bare, NO_BODY);
        response("offset moved", ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", bare, NO_BODY);
    }

    private static void offsets() throws Exception {
        request("query offset", RequestCode.QUERY_CONSUMER_OFFSET,
            header(new QueryConsumerOffsetRequestHeader(), "consumerGroup", GROUP, "topic", TOPIC,
                "queueId", 3, "setZeroIfNotFound", false, "bname", BROKER), NO_BODY);
        request("query offset, optional fields null", RequestCode.QUERY_CONSUMER_OFFSET,
            header(new QueryConsumerOffsetRequestHeader(), "consumerGroup", GROUP, "topic", TOPIC,
                "queueId", 3), NO_BODY);
        response("offset", ResponseCode.SUCCESS, null,
            header(new QueryConsumerOffsetResponseHeader(), "offset", 4711L), NO_BODY);
        response("no offset", ResponseCode.QUERY_NOT_FOUND, "Not found, maybe this group consumer boot first",
            new QueryConsumerOffsetResponseHeader(), NO_BODY);
        oneway("update offset", RequestCode.UPDATE_CONSUMER_OFFSET,
            header(new UpdateConsumerOffsetRequestHeader(), "consumerGroup", GROUP, "topic", TOPIC,
                "queueId", 3, "commitOffset", 4711L, "bname", BROKER), NO_BODY);

        request("search offset", RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            header(new SearchOffsetRequestHeader(), "topic", TOPIC, "queueId", 3, "timestamp", TIME,
                "boundaryType", BoundaryType.UPPER, "bname", BROKER), NO_BODY);
        request("search offset, optional fields null", RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            header(new SearchOffsetRequestHeader(), "topic", TOPIC, "queueId", 3, "timestamp", -1L), NO_BODY);
        request("max offset", RequestCode.GET_MAX_OFFSET,
            header(new GetMaxOffsetRequestHeader(), "topic", TOPIC, "queueId", 3, "bname", BROKER), NO_BODY);
        request("min offset", RequestCode.GET_MIN_OFFSET,
            header(new GetMinOffsetRequestHeader(), "topic", TOPIC, "queueId", 3, "bname", BROKER), NO_BODY);
        request("earliest store time", RequestCode.GET_EARLIEST_MSG_STORETIME,
            header(new GetEarliestMsgStoretimeRequestHeader(), "topic", TOPIC, "queueId", 3), NO_BODY);
        response("searched offset", ResponseCode.SUCCESS, null,
            header(new SearchOffsetResponseHeader(), "offset", 17L), NO_BODY);
        response("max offset answered", ResponseCode.SUCCESS, null,
            header(new GetMaxOffsetResponseHeader(), "offset", 5000L), NO_BODY);
        response("min offset answered", ResponseCode.SUCCESS, null,
            header(new GetMinOffsetResponseHeader(), "offset", 17L), NO_BODY);
        response("earliest store time answered", ResponseCode.SUCCESS, null,
            header(new GetEarliestMsgStoretimeResponseHeader(), "timestamp", TIME), NO_BODY);
    }

    private static void groups() throws Exception {
        SubscriptionData tags = fill(new SubscriptionData(TOPIC, "TagA || TagB"), fields("subVersion", TIME,
            "tagsSet", new TreeSet<>(Arrays.asList("TagA", "TagB")),
            "codeSet", new TreeSet<>(Arrays.asList("TagA".hashCode(), "TagB".hashCode()))));
        SubscriptionData sql = fill(new SubscriptionData("sql-topic", "age > 17 AND city = '北京'"),
            fields("subVersion", TIME, "expressionType", "SQL92"));
        ConsumerData consumer = fill(new ConsumerData(), fields("groupName", GROUP,
            "consumeType", ConsumeType.CONSUME_PASSIVELY, "messageModel", MessageModel.CLUSTERING,
            "consumeFromWhere", ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            "subscriptionDataSet", inOrder(tags, sql)));
        ProducerData producer = fill(new ProducerData(), fields("groupName", "CLIENT_INNER_PRODUCER"));
        HeartbeatData heartbeat = fill(new HeartbeatData(), fields("clientID", CLIENT,
            "producerDataSet", inOrder(producer), "consumerDataSet", inOrder(consumer)));
        request("heartbeat", RequestCode.HEART_BEAT, new HeartbeatRequestHeader(), heartbeat.encode());
        response("heartbeat answered", ResponseCode.SUCCESS, null, null, NO_BODY,
            "IS_SUPPORT_HEART_BEAT_V2", "true", "IS_SUB_CHANGE", "true");
        response("nothing but success", ResponseCode.SUCCESS, null, null, NO_BODY);
        request("unregister client", RequestCode.UNREGISTER_CLIENT,
            header(new UnregisterClientRequestHeader(), "clientID", CLIENT, "producerGroup", "producers",
                "consumerGroup", GROUP), NO_BODY);
        request("unregister client, optional fields null", RequestCode.UNREGISTER_CLIENT,
            header(new UnregisterClientRequestHeader(), "clientID", CLIENT), NO_BODY);
        request("check client", RequestCode.CHECK_CLIENT_CONFIG, null,
            fill(new CheckClientRequestBody(), fields("clientId", CLIENT, "group", GROUP,
                "subscriptionData", sql)).encode());
        request("consumer ids", RequestCode.GET_CONSUMER_LIST_BY_GROUP,
            header(new GetConsumerListByGroupRequestHeader(), "consumerGroup", GROUP, "bname", BROKER), NO_BODY);
        response("consumer ids answered", ResponseCode.SUCCESS, null, new GetConsumerListByGroupResponseHeader(),
            fill(new GetConsumerListByGroupResponseBody(), fields("consumerIdList",
                Arrays.asList(CLIENT, "192.168.0.2@消"))).encode());
        oneway("consumer ids changed", RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
            header(new NotifyConsumerIdsChangedRequestHeader(), "consumerGroup", GROUP), NO_BODY);
        request("send back", RequestCode.CONSUMER_SEND_MSG_BACK,
            header(new ConsumerSendMsgBackRequestHeader(), "offset", 4660L, "group", GROUP, "delayLevel", 3,
                "originMsgId", UNIQUE_ID, "originTopic", TOPIC, "unitMode", false, "maxReconsumeTimes", 16,
                "bname", BROKER), NO_BODY);
        request("send back, optional fields null", RequestCode.CONSUMER_SEND_MSG_BACK,
            header(new ConsumerSendMsgBackRequestHeader(), "offset", 4660L, "group", GROUP, "delayLevel", -1),
            NO_BODY);
    }

    private static void locks() throws Exception {
        Set<MessageQueue> queues = inOrder(new MessageQueue(TOPIC, BROKER, 0), new MessageQueue(TOPIC, BROKER, 1));
        request("lock queues", RequestCode.LOCK_BATCH_MQ, new LockBatchMqRequestHeader(),
            fill(new LockBatchRequestBody(), fields("consumerGroup", GROUP, "clientId", CLIENT,
                "mqSet", queues)).encode());
        response("locked queues", ResponseCode.SUCCESS, null, null,
            fill(new LockBatchResponseBody(), fields("lockOKMQSet", queues)).encode());
        oneway("unlock queues", RequestCode.UNLOCK_BATCH_MQ, new UnlockBatchMqRequestHeader(),
            fill(new UnlockBatchRequestBody(), fields("consumerGroup", GROUP, "clientId", CLIENT,
                "mqSet", queues)).encode());
    }

    private static void transactions() throws Exception {
        RemotingCommand end = RemotingCommand.createRequestCommand(RequestCode.END_TRANSACTION, null);
        end.setRemark(ODD_TEXT);
        end.markOnewayRPC();
        command("end transaction, with a remark", end,
            header(new EndTransactionRequestHeader(), "topic", TOPIC, "producerGroup", GROUP,
                "tranStateTableOffset", 9L, "commitLogOffset", 4660L, "commitOrRollback", 8,
                "fromTransactionCheck", true, "msgId", UNIQUE_ID, "transactionId", UNIQUE_ID, "bname", BROKER));
        oneway("end transaction, optional fields null", RequestCode.END_TRANSACTION,
            header(new EndTransactionRequestHeader(), "producerGroup", GROUP, "tranStateTableOffset", 9L,
                "commitLogOffset", 4660L, "commitOrRollback", 12, "fromTransactionCheck", null,
                "msgId", UNIQUE_ID), NO_BODY);
        oneway("check transaction state", RequestCode.CHECK_TRANSACTION_STATE,
            header(new CheckTransactionStateRequestHeader(), "topic", TOPIC, "tranStateTableOffset", 9L,
                "commitLogOffset", 4660L, "msgId", UNIQUE_ID, "transactionId", UNIQUE_ID,
                "offsetMsgId", OFFSET_ID), new byte[] {1, 2, 3});
    }

    private static void nameServer() throws Exception {
        request("route", RequestCode.GET_ROUTEINFO_BY_TOPIC,
            header(new GetRouteInfoRequestHeader(), "topic", TOPIC, "acceptStandardJsonOnly", true), NO_BODY);
        request("route, optional fields null", RequestCode.GET_ROUTEINFO_BY_TOPIC,
            header(new GetRouteInfoRequestHeader(), "topic", TOPIC), NO_BODY);
        TopicRouteData route = fill(new TopicRouteData(), fields(
            "queueDatas", Collections.singletonList(fill(new QueueData(), fields("brokerName", BROKER,
                "readQueueNums", 8, "writeQueueNums", 4, "perm", 6))),
            "brokerDatas", Collections.singletonList(new BrokerData(CLUSTER, BROKER,
                new HashMap<>(Map.of(0L, ADDRESS, 1L, "127.0.0.1:10921")))),
            "filterServerTable", new HashMap<>()));
        response("route answered", ResponseCode.SUCCESS, null, null, route.encode());
        response("no route", ResponseCode.TOPIC_NOT_EXIST,
            "No topic route info in name server for the topic: " + TOPIC, null, NO_BODY);

        DataVersion version = fill(new DataVersion(), fields("stateVersion", 0L, "timestamp", TIME,
            "counter", new AtomicLong(5)));
        RegisterBrokerBody body = new RegisterBrokerBody();
        ConcurrentMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        topics.put(TOPIC, new TopicConfig(TOPIC, 8, 4, 6));
        body.getTopicConfigSerializeWrapper().setTopicConfigTable(topics);
        body.getTopicConfigSerializeWrapper().setDataVersion(version);
        body.getTopicConfigSerializeWrapper().setMappingDataVersion(version);
        for (boolean compressed : List.of(false, true)) {
            request("register broker" + (compressed ? ", body compressed" : ""), RequestCode.REGISTER_BROKER,
                header(new RegisterBrokerRequestHeader(), "brokerName", BROKER, "brokerAddr", ADDRESS,
                    "clusterName", CLUSTER, "haServerAddr", "127.0.0.1:10912", "brokerId", 0L,
                    "enableActingMaster", false, "compressed", compressed, "bodyCrc32", 123456),
                body.encode(compressed));
        }
        response("registered", ResponseCode.SUCCESS, null,
            header(new RegisterBrokerResponseHeader(), "haServerAddr", "127.0.0.1:10912", "masterAddr", ADDRESS),
            NO_BODY);
        response("registered, first", ResponseCode.SUCCESS, null, new RegisterBrokerResponseHeader(), NO_BODY);
        request("unregister broker", RequestCode.UNREGISTER_BROKER,
            header(new UnRegisterBrokerRequestHeader(), "brokerName", BROKER, "brokerAddr", ADDRESS,
                "clusterName", CLUSTER, "brokerId", 0L), NO_BODY);
        request("query data version", RequestCode.QUERY_DATA_VERSION,
            header(new QueryDataVersionRequestHeader(), "brokerName", BROKER, "brokerAddr", ADDRESS,
                "clusterName", CLUSTER, "brokerId", 0L), version.encode());
        response("data version", ResponseCode.SUCCESS, null,
            header(new QueryDataVersionResponseHeader(), "changed", false), version.encode());
    }

    private static void request(String name, int code, CommandCustomHeader header, byte[] body) throws Exception {
        RemotingCommand command = RemotingCommand.createRequestCommand(code, null);
        command.setBody(body);
        command(name, command, header);
    }

    private static void oneway(String name, int code, CommandCustomHeader header, byte[] body) throws Exception {
        RemotingCommand command = RemotingCommand.createRequestCommand(code, null);
        command.markOnewayRPC();
        command.setBody(body);
        command(name, command, header);
    }

    private static void response(String name, int code, String remark, CommandCustomHeader header,
            byte[] body, String... extra) throws Exception {
        RemotingCommand command = RemotingCommand.createResponseCommand(code, remark);
        for (int i = 0; i < extra.length; i += 2) {
            command.addExtField(extra[i], extra[i + 1]);
        }
        command.setBody(body);
        command(name, command, header);
    }

    private static void command(String name, RemotingCommand command, CommandCustomHeader header)
            throws Exception {
        command.setVersion(MQVersion.CURRENT_VERSION);
        command.setOpaque(opaque++);
        command.writeCustomHeader(header);
        Map<String, String> extra = command.getExtFields();
        Map<String, Object> golden = new LinkedHashMap<>();
        // The binary form first: the JSON form moves the header's fields into extFields.
        String binary = frame(command, SerializeType.ROCKETMQ);
        command.setExtFields(extra == null ? null : new HashMap<>(extra));
        command.writeCustomHeader(header);
        String json = frame(command, SerializeType.JSON);
        golden.put("name", name);
        golden.put("code", command.getCode());
        golden.put("opaque", command.getOpaque());
        golden.put("flag", command.getFlag());
        golden.put("version", command.getVersion());
        golden.put("language", command.getLanguage().name());
        golden.put("remark", command.getRemark());
        golden.put("header", header == null ? null : header.getClass().getSimpleName());
        golden.put("fields", header == null ? null : values(header));
        golden.put("extFields", command.getExtFields() == null ? null : new TreeMap<>(command.getExtFields()));
        golden.put("body", command.getBody() == null ? "" : ByteBufUtil.hexDump(command.getBody()));
        golden.put("json", json);
        golden.put("binary", binary);
        Marked.line("command", golden);
    }

    /** What NettyEncoder writes for the command. */
    private static String frame(RemotingCommand command, SerializeType type) throws Exception {
        command.setSerializeTypeCurrentRPC(type);
        ByteBuf out = Unpooled.buffer();
        command.fastEncodeHeader(out);
        if (command.getBody() != null) {
            out.writeBytes(command.getBody());
        }
        return ByteBufUtil.hexDump(out);
    }

    private static CommandCustomHeader header(CommandCustomHeader header, Object... namesAndValues)
            throws Exception {
        return fill(header, fields(namesAndValues));
    }

    private static Map<String, Object> fields(Object... namesAndValues) {
        Map<String, Object> fields = new HashMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            fields.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        return fields;
    }

    private static <T> T fill(T target, Map<String, Object> fields) throws Exception {
        Map<String, Field> known = declared(target);
        for (Map.Entry<String, Object> field : fields.entrySet()) {
            known.get(field.getKey()).set(target, field.getValue());
        }
        return target;
    }

    private static Map<String, Object> values(Object header) throws Exception {
        Map<String, Object> values = new TreeMap<>();
        for (Map.Entry<String, Field> field : declared(header).entrySet()) {
            Object value = field.getValue().get(header);
            values.put(field.getKey(), value instanceof Enum ? value.toString() : value);
        }
        return values;
    }

    private static Map<String, Field> declared(Object object) {
        Map<String, Field> fields = new HashMap<>();
        for (Class<?> type = object.getClass(); type != Object.class; type = type.getSuperclass()) {
            for (Field field : type.getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers())) {
                    field.setAccessible(true);
                    fields.putIfAbsent(field.getName(), field);
                }
            }
        }
        return fields;
    }

    @SafeVarargs
    private static <T> Set<T> inOrder(T... values) {
        return new LinkedHashSet<>(Arrays.asList(values));
    }
}
