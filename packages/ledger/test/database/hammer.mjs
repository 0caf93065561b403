import pg from "pg";

/**
 * Several plain clients that question the database at once, each answer checked against its question.
 *
 * Needs `create table hammer (client text, n int)` and `create table hammer_count (n int)` with one row.
 */
export async function hammer(connectionOptions, name, clients, ms) {
  const counts = { asked: 0, wrong: 0, errors: 0, committed: 0, rolledBack: 0, messages: [] };
  const until = performance.now() + ms;
  await Promise.all(Array.from({ length: clients }, (_, i) => one(connectionOptions, `${name}${i}`, until, counts)));
  return counts;
}

async function one(connectionOptions, who, until, counts) {
  const client = new pg.Client(connectionOptions);
  await client.connect();
  let committed = 0;
  const check = (right) => {
    counts.asked++;
    if (!right) counts.wrong++;
  };
  for (let n = 0; performance.now() < until; n++) {
    try {
      const blob = `${who} ${n} `.repeat(Math.ceil(300_000 / `${who} ${n} `.length));
      const echo = await client.query("select $1::text as who, $2::int as n, $3::text as blob", [who, n, blob]);
      check(echo.rows[0]?.who === who && echo.rows[0]?.n === n && echo.rows[0]?.blob === blob);

      const ids = Array.from({ length: 3000 }, (_, i) => i + n);
      const sum = await client.query("select count(*)::int as c, max(i)::int as m from unnest($1::int[]) as t(i)", [
        ids,
      ]);
      check(sum.rows[0]?.c === 3000 && sum.rows[0]?.m === 2999 + n);

      await client.query("begin");
      await client.query("insert into hammer values ($1, $2)", [who, n]);
      const before = await client.query("select n from hammer_count");
      const after = await client.query("update hammer_count set n = n + 1 returning n");
      check(after.rows[0].n === before.rows[0].n + 1); // nobody came in between
      const own = await client.query("select count(*)::int as c from hammer where client = $1", [who]);
      check(own.rows[0].c === committed + 1);
      if (n % 3 === 0) {
        await client.query("rollback");
        counts.rolledBack++;
      } else {
        await client.query("commit");
        counts.committed++;
        committed++;
      }
      const missing = await client.query("select * from no_such_table").catch((error) => error.code);
      check(missing === "42P01");
    } catch (error) {
      counts.errors++;
      if (counts.messages.length < 5) counts.messages.push(error.message);
    }
  }
  await client.end();
}
