import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.time.Instant;
import java.util.concurrent.ThreadLocalRandom;

/** Gets a URL and comes back only if that does no harm: after the time asked, apart from others, within a budget. */
class Retry {
    static final HttpClient CLIENT = HttpClient.newHttpClient();
    static final int RETRIES = 3;
    static final long WAIT_MS = 100, CAP_MS = 30_000;
    static double budget = 10; // retries: a request adds a tenth

    static synchronized boolean pay(double change) {
        if (budget + change < 0) return false;
        budget = Math.min(budget + change, 10);
        return true;
    }

    static HttpResponse<String> get(String url, Duration deadline) throws IOException, InterruptedException {
        var ends = Instant.now().plus(deadline);
        pay(0.1);
        for (var attempt = 1;; attempt++) {
            var left = Math.max(Duration.between(Instant.now(), ends).toMillis(), 1);
            var request = HttpRequest.newBuilder(URI.create(url)).timeout(Duration.ofMillis(left))
                    .header("x-plimsoll-attempt", "" + attempt).build();
            var response = CLIENT.send(request, BodyHandlers.ofString());
            var fields = response.headers();
            var asked = fields.firstValue("retry-after").filter(text -> text.matches("\\d{1,9}"))
                    .map(text -> Long.parseLong(text) * 1_000).orElse(0L);
            var wait = asked + ThreadLocalRandom.current().nextLong(Math.max(asked, WAIT_MS << attempt));
            var isRefused = response.statusCode() == 429 || response.statusCode() == 503;
            var isUsedUp = fields.firstValue("x-ratelimit-reason").orElse("").equals("tenant_quota_exceeded");
            var isLate = wait > CAP_MS || Instant.now().plusMillis(wait).isAfter(ends);
            if (!isRefused || isUsedUp || isLate || attempt > RETRIES || !pay(-1)) return response;
            Thread.sleep(wait);
        }
    }

    public static void main(String[] args) throws IOException, InterruptedException { // java Retry.java URL
        System.out.println(get(args[0], Duration.ofSeconds(20)).statusCode());
    }
}
