import dev.dormouse.client.*;
import java.util.Map;

class First {
    public static void main(String[] words) {
        try (var client = Client.connect(words[0], "ads")) {
            var job = new Job("from-java").start("sh", "-c", "echo rank $DORMOUSE_RANK")
                    .demand(Map.of("cpu", 1, "memory", "64Mi")).containers(1, 2);
            System.out.println(Client.await(client.submit(job)).state());
        }
    }
}
