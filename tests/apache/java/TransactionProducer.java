import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends a message in a transaction for each of `keys`. What a key begins with says how it ends:
 * `commit`, `rollback` or `open`, which is answered UNKNOW; the rest of an open one's key is the
 * answer to its check. Prints `sent` [key, state], `checked` [key, transaction id of the message,
 * checks so far], `done`, and answers checks until it is stopped.
 */
final class TransactionProducer implements TransactionListener {
    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = Marked.options(arguments);
        TransactionMQProducer producer =
            Connected.to(options.get("nameServer"), new TransactionMQProducer(options.get("group")));
        producer.setSendMsgTimeout(Connected.PATIENCE_MS);
        producer.setTransactionListener(new TransactionProducer());
        producer.start();
        CountDownLatch stopped = Marked.stopped();
        for (String key : options.get("keys").split(",")) {
            byte[] body = key.getBytes(StandardCharsets.UTF_8);
            Message message = new Message(options.get("topic"), "TagA", key, body);
            TransactionSendResult result = producer.sendMessageInTransaction(message, key);
            Marked.line("sent", new Object[] {key, result.getLocalTransactionState().name()});
        }
        Marked.line("done", Collections.emptyMap());
        stopped.await();
        producer.shutdown();
        System.exit(0);
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object key) {
        return state((String) key);
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        Marked.line("checked", new Object[] {
            message.getKeys(), message.getTransactionId(), message.getTopic(),
            message.getProperty("TRANSACTION_CHECK_TIMES"),
            new String(message.getBody(), StandardCharsets.UTF_8),
        });
        return state(message.getKeys().substring("open-".length()));
    }

    private static LocalTransactionState state(String key) {
        if (key.startsWith("commit")) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }
        return key.startsWith("rollback") ? LocalTransactionState.ROLLBACK_MESSAGE
            : LocalTransactionState.UNKNOW;
    }
}
