import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;

/** Asks a Plimsoll sidecar about each request. Without an answer in 50 ms the request is served. */
class Check {
    static final HttpClient CLIENT = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

    /** Bucket and tenant are names without quotes or backslashes; use a JSON library for other texts. */
    static boolean isAllowed(String sidecar, String bucket, String tenant) throws InterruptedException {
        var body = "{\"bucket\":\"%s\",\"tenant\":\"%s\"}".formatted(bucket, tenant);
        var request = HttpRequest.newBuilder(URI.create(sidecar + "/v1/check")).timeout(Duration.ofMillis(50))
                .header("content-type", "application/json").POST(HttpRequest.BodyPublishers.ofString(body)).build();
        try {
            var response = CLIENT.send(request, BodyHandlers.ofString());
            return response.statusCode() != 200 || !response.body().contains("\"allowed\":false");
        } catch (IOException noAnswer) {
            return true;
        }
    }

    public static void main(String[] args) throws InterruptedException { // java Check.java PORT BUCKET TENANT
        var isAllowed = true;
        for (var asked = 0; asked < 10; asked++) { // the first requests load classes, which may take more than 50 ms
            isAllowed = isAllowed("http://127.0.0.1:" + args[0], args[1], args[2]);
        }
        System.out.println(isAllowed ? "allowed" : "refused");
    }
}
