import com.amazonaws.services.dynamodbv2.local.main.ServerRunner;
import java.net.ServerSocket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

/**
 * Amazon's DynamoDB for tests, in memory, with the one table that Dolt needs. Prints its URL when
 * the table is there, and ends when its standard input does.
 */
public class DynamoServer {
    private static final String CREATE_TABLE = """
        {"TableName": "%s", "BillingMode": "PAY_PER_REQUEST",
         "AttributeDefinitions": [{"AttributeName": "db", "AttributeType": "S"}],
         "KeySchema": [{"AttributeName": "db", "KeyType": "HASH"}]}
        """;

    public static void main(String[] arguments) throws Exception {
        String table = arguments[0];
        String port = freePort();
        String[] options = {"-inMemory", "-sharedDb", "-port", port};
        ServerRunner.createServerFromCommandLineArgs(options).start();
        String url = "http://127.0.0.1:" + port;
        // The signature is not checked, but there has to be one.
        HttpRequest request = HttpRequest.newBuilder(URI.create(url))
            .header("content-type", "application/x-amz-json-1.0")
            .header("x-amz-target", "DynamoDB_20120810.CreateTable")
            .header("authorization", "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20250101/us-east-1/"
                + "dynamodb/aws4_request, SignedHeaders=host, Signature=00")
            .POST(HttpRequest.BodyPublishers.ofString(CREATE_TABLE.formatted(table)))
            .build();
        HttpResponse<String> answer =
            HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() != 200) {
            throw new IllegalStateException(answer.body());
        }
        System.out.println("ready " + url);
        System.out.flush();
        System.in.transferTo(java.io.OutputStream.nullOutputStream());
        System.exit(0);
    }

    private static String freePort() throws java.io.IOException {
        try (ServerSocket socket = new ServerSocket(0)) {
            return Integer.toString(socket.getLocalPort());
        }
    }
}
