import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;

/**
 * What DBeaver does with pgJDBC. A line of the input is a statement, its parameters and the getters with which DBeaver
 * reads the columns, each encoded as in URLs; a line of the output a row, after the number of its statement.
 */
class Dbeaver {
    static String[] words(String line, int part) {
        String words = line.split("\t", -1)[part];
        return words.isEmpty() ? new String[0] : words.split(" ");
    }

    static String decoded(String word) {
        return URLDecoder.decode(word, StandardCharsets.UTF_8);
    }

    static PreparedStatement prepared(Connection to, String line) throws Exception {
        PreparedStatement made = to.prepareStatement(decoded(words(line, 0)[0]));
        String[] parameters = words(line, 1);
        for (int place = 0; place < parameters.length; place++) {
            String value = decoded(parameters[place].substring(1));
            if (parameters[place].startsWith("n")) {
                made.setLong(place + 1, Long.parseLong(value));
            } else {
                made.setString(place + 1, value);
            }
        }
        return made;
    }

    static String row(ResultSet result, String[] reads) throws Exception {
        StringBuilder row = new StringBuilder();
        for (String read : reads) {
            String[] parts = decoded(read).split(" ", 2);
            Method getter = ResultSet.class.getMethod(parts[0], String.class);
            String value = String.valueOf(getter.invoke(result, parts[1]));
            row.append(" ").append(URLEncoder.encode(value, StandardCharsets.UTF_8));
        }
        return row.toString();
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (Connection to = DriverManager.getConnection(arguments[0])) {
            to.setClientInfo("ApplicationName", "DBeaver 24.2.4 - Main <bank>");
            int number = 0;
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                try (PreparedStatement made = prepared(to, line)) {
                    ResultSet result = made.execute() ? made.getResultSet() : null;
                    while (result != null && result.next()) {
                        System.out.println(number + row(result, words(line, 2)));
                    }
                }
                number++;
            }
            System.out.println("end " + number);
        }
    }
}
