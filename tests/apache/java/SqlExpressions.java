import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.common.filter.ExpressionType;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * Judges the expressions in the file `cases`: JSON, [[expression, [properties, ...]], ...]. Prints one
 * line `outcomes` with a list for each: ["refused"], or what it says of each message's properties:
 * "true", "false", "null", or "error" when it throws.
 */
final class SqlExpressions {
    public static void main(String[] arguments) throws Exception {
        String file = Marked.options(arguments).get("cases");
        String text = new String(Files.readAllBytes(Paths.get(file)), StandardCharsets.UTF_8);
        List<List<String>> outcomes = new ArrayList<>();
        for (Object item : JSON.parseArray(text)) {
            JSONArray pair = (JSONArray) item;
            outcomes.add(outcomes(pair.getString(0), pair.getJSONArray(1)));
        }
        Marked.line("outcomes", outcomes);
    }

    private static List<String> outcomes(String text, JSONArray messages) {
        List<String> outcomes = new ArrayList<>();
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get(ExpressionType.SQL92).compile(text);
        } catch (Exception refusal) {
            outcomes.add("refused");
            return outcomes;
        }
        for (Object message : messages) {
            Map<String, String> properties = new HashMap<>();
            ((Map<?, ?>) message).forEach((name, value) -> properties.put((String) name, (String) value));
            try {
                outcomes.add(String.valueOf(expression.evaluate(new MessageEvaluationContext(properties))));
            } catch (Exception failure) {
                outcomes.add("error");
            }
        }
        return outcomes;
    }
}
