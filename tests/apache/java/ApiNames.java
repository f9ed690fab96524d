import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.TreeSet;

/** Prints the public names of classes, those of their getters and setters as properties. */
final class ApiNames {
    public static void main(String[] names) throws Exception {
        for (String name : names) {
            TreeSet<String> found = new TreeSet<>();
            for (Method method : Class.forName(name).getDeclaredMethods()) {
                boolean visible = Modifier.isPublic(method.getModifiers())
                    && !Modifier.isStatic(method.getModifiers()) && !method.isSynthetic();
                if (visible) {
                    found.add(property(method.getName()));
                }
            }
            Marked.line(name.substring(name.lastIndexOf('.') + 1), found);
        }
    }

    private static String property(String name) {
        for (String prefix : new String[] {"get", "set", "is"}) {
            boolean accessor = name.startsWith(prefix) && name.length() > prefix.length()
                && Character.isUpperCase(name.charAt(prefix.length()));
            if (accessor) {
                String rest = name.substring(prefix.length());
                return rest.substring(0, 1).toLowerCase() + rest.substring(1);
            }
        }
        return name;
    }
}
