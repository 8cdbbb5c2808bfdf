import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.regex.Pattern;

/** Publishes, leases and acks with java.net.http.HttpClient as it comes: it offers HTTP/2 with every new connection. */
public class Client {
    static final HttpClient CLIENT = HttpClient.newHttpClient();

    static String post(String url, String body, int expected) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(url)).POST(HttpRequest.BodyPublishers.ofString(body)).build();
        var response = CLIENT.send(request, HttpResponse.BodyHandlers.ofString());
        if (response.statusCode() != expected) {
            throw new IllegalStateException(response.statusCode() + " " + response.body());
        }
        return response.body();
    }

    public static void main(String[] arguments) throws Exception {
        String url = arguments[0];
        for (int number = 0; number < 3; number++) {
            post(url + "/v1/publish", "{\"queue\":\"java\",\"messages\":[{\"payload\":" + number + "}]}", 201);
        }
        String leased = post(url + "/v1/lease", "{\"queue\":\"java\",\"max\":10}", 200);
        var receipts = new StringBuilder();
        var found = Pattern.compile("\"receipt\":\"([^\"]+)\"").matcher(leased);
        while (found.find()) {
            receipts.append(receipts.isEmpty() ? "" : ",").append('"').append(found.group(1)).append('"');
        }
        System.out.println(post(url + "/v1/ack", "{\"receipts\":[" + receipts + "]}", 200));
    }
}
