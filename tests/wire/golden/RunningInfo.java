import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONWriter;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.body.CMResult;
import org.apache.rocketmq.remoting.protocol.body.ConsumeMessageDirectlyResult;
import org.apache.rocketmq.remoting.protocol.body.ConsumeStatus;
import org.apache.rocketmq.remoting.protocol.body.ConsumerRunningInfo;
import org.apache.rocketmq.remoting.protocol.body.PopProcessQueueInfo;
import org.apache.rocketmq.remoting.protocol.body.ProcessQueueInfo;
import org.apache.rocketmq.remoting.protocol.filter.FilterAPI;
import org.apache.rocketmq.remoting.protocol.heartbeat.SubscriptionData;

/**
 * Prints what running_info.json holds: the bodies as Apache's own classes encode them, each decoded
 * by them and encoded once more. Run with java -cp "jars/*" RunningInfo.java.
 */
public class RunningInfo {
    static final Map<String, String> OUT = new LinkedHashMap<>();

    static void put(String name, RemotingSerializable body) {
        String text = new String(body.encode());
        RemotingSerializable again = RemotingSerializable.decode(body.encode(), body.getClass());
        if (!text.equals(new String(again.encode()))) {
            throw new IllegalStateException(name + ": " + new String(again.encode()));
        }
        OUT.put(name, text);
    }

    public static void main(String[] args) throws Exception {
        put("running_info_empty", new ConsumerRunningInfo());

        ConsumerRunningInfo info = new ConsumerRunningInfo();
        info.getProperties().put(ConsumerRunningInfo.PROP_CONSUME_TYPE, "CONSUME_PASSIVELY");
        SubscriptionData subscription = FilterAPI.buildSubscriptionData("flights", "TagA");
        subscription.setSubVersion(1700000000123L);
        info.getSubscriptionSet().add(subscription);
        ProcessQueueInfo queue = new ProcessQueueInfo();
        queue.setCommitOffset(1);
        queue.setCachedMsgMinOffset(2);
        queue.setCachedMsgMaxOffset(3);
        queue.setCachedMsgCount(4);
        queue.setCachedMsgSizeInMiB(5);
        queue.setTransactionMsgMinOffset(6);
        queue.setTransactionMsgMaxOffset(7);
        queue.setTransactionMsgCount(8);
        queue.setLocked(true);
        queue.setTryUnlockTimes(9);
        queue.setLastLockTimestamp(1700000000001L);
        queue.setDroped(true);
        queue.setLastPullTimestamp(1700000000002L);
        queue.setLastConsumeTimestamp(1700000000003L);
        info.getMqTable().put(new MessageQueue("flights", "broker-a", 10), new ProcessQueueInfo());
        info.getMqTable().put(new MessageQueue("flights", "broker-a", 3), queue);
        PopProcessQueueInfo pop = new PopProcessQueueInfo();
        pop.setWaitAckCount(1);
        pop.setDroped(true);
        pop.setLastPopTimestamp(1700000000004L);
        info.getMqPopTable().put(new MessageQueue("flights", "broker-a", 3), pop);
        ConsumeStatus status = new ConsumeStatus();
        status.setPullRT(1.5);
        status.setPullTPS(1000.25);
        status.setConsumeRT(0.125);
        status.setConsumeOKTPS(3);
        status.setConsumeFailedTPS(0.1);
        status.setConsumeFailedMsgs(42);
        info.getStatusTable().put("flights", status);
        info.getStatusTable().put("%RETRY%readers", new ConsumeStatus());
        info.getUserConsumerInfo().put("color", "blue");
        info.setJstack("main\n  at \"home\"");
        put("running_info", info);

        ConsumeMessageDirectlyResult direct = new ConsumeMessageDirectlyResult();
        put("consume_directly_empty", direct);
        direct.setOrder(true);
        direct.setAutoCommit(false);
        direct.setConsumeResult(CMResult.CR_THROW_EXCEPTION);
        direct.setRemark("no");
        direct.setSpentTimeMills(12);
        put("consume_directly", direct);
        System.out.println(JSON.toJSONString(OUT, JSONWriter.Feature.PrettyFormat));
    }
}
