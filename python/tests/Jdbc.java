import java.sql.CallableStatement;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Arrays;
import java.util.concurrent.Callable;
import org.postgresql.PGConnection;

/** What clients of pgJDBC do; prints a line for each. */
class Jdbc {
    static String rows(ResultSet result) throws SQLException {
        StringBuilder text = new StringBuilder();
        int columns = result.getMetaData().getColumnCount();
        while (result.next()) {
            for (int column = 1; column <= columns; column++) {
                text.append(column > 1 ? "," : "").append(result.getObject(column));
            }
            text.append(";");
        }
        return text.toString();
    }

    /** Only some columns, by name. */
    static String some(ResultSet result, String... names) throws SQLException {
        StringBuilder text = new StringBuilder();
        while (result.next()) {
            for (String name : names) {
                text.append(text.length() > 0 ? "," : "").append(result.getObject(name));
            }
        }
        return text.toString();
    }

    static void say(String name, Callable<Object> what) {
        try {
            System.out.println(name + ": " + what.call());
        } catch (SQLException error) {
            System.out.println(name + ": " + error.getSQLState() + " " + error.getMessage().split("\n")[0]);
        } catch (Exception error) {
            System.out.println(name + ": " + error);
        }
    }

    static PreparedStatement deposit(Connection to, String account, long amount) throws SQLException {
        PreparedStatement made = to.prepareStatement("SELECT * FROM deposit(?, ?)");
        made.setString(1, account);
        made.setLong(2, amount);
        return made;
    }

    public static void main(String[] arguments) throws Exception {
        String url = arguments[0];
        Connection to = DriverManager.getConnection(url);
        say("statement", () -> rows(to.createStatement().executeQuery("SELECT * FROM deposit('ada', 10)")));
        // The driver makes a statement of the server's of one that is used five times, and asks for binary values.
        say("prepared", () -> {
            PreparedStatement made = deposit(to, "ada", 1);
            String last = "";
            for (int time = 0; time < 8; time++) {
                last = rows(made.executeQuery());
            }
            return last;
        });
        say("read", () -> {
            PreparedStatement made = to.prepareStatement("SELECT * FROM accounts WHERE id = ?");
            String last = "";
            for (int time = 0; time < 8; time++) {
                made.setString(1, "ada");
                last = rows(made.executeQuery());
            }
            return last;
        });
        say("call", () -> {
            CallableStatement made = to.prepareCall("{call deposit(?, ?)}");
            made.setString(1, "ada");
            made.setLong(2, 2);
            return made.execute() ? rows(made.getResultSet()) : "no rows";
        });
        say("batch", () -> {
            PreparedStatement made = to.prepareStatement("CALL deposit(?, ?)");
            for (int amount = 1; amount <= 4; amount++) {
                made.setString(1, "eve");
                made.setLong(2, amount);
                made.addBatch();
            }
            return Arrays.toString(made.executeBatch());
        });
        say("abort", () -> rows(deposit(to, "ada", -1).executeQuery()));
        say("query", () -> {
            PreparedStatement made =
                    to.prepareStatement("SELECT id, balance FROM accounts WHERE balance > ? AND id LIKE ? ORDER BY id");
            made.setBigDecimal(1, new java.math.BigDecimal("1"));
            made.setString(2, "%e%");
            return rows(made.executeQuery());
        });
        say("fetch size", () -> {
            to.setAutoCommit(false);
            Statement made = to.createStatement();
            made.setFetchSize(1);
            String all = rows(made.executeQuery("SELECT id FROM accounts ORDER BY id"));
            to.commit();
            to.setAutoCommit(true);
            return all;
        });
        say("most rows", () -> {
            Statement made = to.createStatement();
            made.setMaxRows(1);
            return rows(made.executeQuery("SELECT id FROM accounts ORDER BY id"));
        });
        say("timeout", () -> {
            Statement made = to.createStatement();
            made.setQueryTimeout(1);
            String endless = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT max(n) FROM t";
            return rows(made.executeQuery(endless));
        });
        say("valid", () -> to.isValid(5));
        DatabaseMetaData data = to.getMetaData();
        say("tables", () -> some(data.getTables(null, "public", "acc%", new String[] {"TABLE"}), "TABLE_NAME"));
        say("columns", () -> some(data.getColumns(null, "public", "accounts", null), "COLUMN_NAME", "TYPE_NAME"));
        say("key", () -> some(data.getPrimaryKeys(null, "public", "accounts"), "COLUMN_NAME"));
        say("functions", () -> some(data.getFunctions(null, "public", "dep%"), "FUNCTION_NAME"));
        say("schemas", () -> some(data.getSchemas(null, "public"), "TABLE_SCHEM"));
        say("types", () -> data.getTypeInfo().next());
        say("listen", () -> {
            to.createStatement().execute("LISTEN \"deposit.committed\"");
            try (Connection other = DriverManager.getConnection(url)) {
                deposit(other, "ada", 1).executeQuery();
            }
            String heard = "nothing";
            for (int time = 0; time < 50 && heard.equals("nothing"); time++) {
                var notifications = to.unwrap(PGConnection.class).getNotifications(200);
                if (notifications != null && notifications.length > 0) {
                    heard = notifications[0].getName() + " " + notifications[0].getParameter();
                }
            }
            return heard;
        });
        to.close();
    }
}
