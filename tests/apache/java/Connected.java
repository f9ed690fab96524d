import org.apache.rocketmq.client.ClientConfig;

/**
 * A client's name server, and its patience: on a busy machine an answer may take longer than the 3 s
 * after which start() throws, and the program would end.
 */
final class Connected {
    static final int PATIENCE_MS = 60_000;

    static <C extends ClientConfig> C to(String nameServer, C client) {
        client.setNamesrvAddr(nameServer);
        client.setMqClientApiTimeout(PATIENCE_MS);
        return client;
    }
}
