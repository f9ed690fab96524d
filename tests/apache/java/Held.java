import java.lang.reflect.Field;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.impl.consumer.RebalanceImpl;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Prints which queues of `topic` a consumer has, whenever they change: a line `queues` with
 * [broker, id] each. In order it has those that their broker locked for it. Consumers of 4.9.7 have
 * no listener that would tell, and Share tells what a consumer wants, had or not.
 */
final class Held {
    private static final long LOOK_EVERY_MS = 20;

    private final RebalanceImpl rebalance;
    private final String topic;
    private final boolean orderly;
    private List<MessageQueue> last = List.of();

    private Held(RebalanceImpl rebalance, String topic, boolean orderly) {
        this.rebalance = rebalance;
        this.topic = topic;
        this.orderly = orderly;
    }

    /** Prints from now on; `implementation` is what a consumer delegates to. */
    static void print(Object implementation, String topic, boolean orderly) throws Exception {
        RebalanceImpl rebalance = (RebalanceImpl) field(implementation, "rebalanceImpl");
        Thread looker = new Thread(new Held(rebalance, topic, orderly)::printForEver, "held");
        looker.setDaemon(true);
        looker.start();
    }

    static Object field(Object object, String name) throws Exception {
        Field field = object.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(object);
    }

    private void printForEver() {
        try {
            while (true) {
                look();
                Thread.sleep(LOOK_EVERY_MS);
            }
        } catch (InterruptedException end) {
            Thread.currentThread().interrupt();
        }
    }

    private void look() {
        List<MessageQueue> mine = rebalance.getProcessQueueTable().entrySet().stream()
            .filter(entry -> !entry.getValue().isDropped() && (!orderly || entry.getValue().isLocked()))
            .map(entry -> entry.getKey())
            .filter(queue -> queue.getTopic().equals(topic))
            .sorted()
            .collect(Collectors.toList());
        if (!mine.equals(last)) {
            Marked.line("queues", Share.pairs(mine));
            last = mine;
        }
    }
}
