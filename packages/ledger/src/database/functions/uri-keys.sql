-- The texts of a URI and of a scope (F10), for callers that have SQL alone: the same as `resource-uri.ts` and `uri-scope.ts`
-- compute, or none. A test compares the two over hostile URIs and over every code point.
--
-- What SQL cannot compute is refused, never computed differently (a denial must not cover less than was asked for):
--   * the host of an `http:`, `https:`, `ws:`, `wss:`, `ftp:` or `file:` URI that is more than letters, digits, `-`, `_` and dots,
--     a dotted IPv4 address, credentials and a port (IDNA, IPv6, drive letters)
--   * an authority with letters whose lower case is not a matter of one table (beyond Latin, Greek and Cyrillic)
--   * characters that take part in Unicode's normalisation and that PostgreSQL 15 does not know yet
-- U+0000 and lone surrogates are no text to PostgreSQL, so nobody can ask for them here.

-- The key of a resource: `resourceKey`.
create or replace function fenceline.uri_resource_key(p_uri text) returns text language plpgsql immutable as $$
declare
  c_triplet constant text := '%[0-9A-Fa-f]{2}';
  c_unreserved constant text := '^%(2[DdEe]|3[0-9]|4[1-9A-Fa-f]|5[0-9AaFf]|6[1-9A-Fa-f]|7[0-9AaEe])$';
  v_scheme text := substring(p_uri from '^[A-Za-z][A-Za-z0-9+.-]*(?=:)');
  v_key text := p_uri;
begin
  if v_scheme is not null and p_uri !~ '%(?![0-9A-Fa-f]{2})' then
    v_key := lower(v_scheme collate "C") || substr(p_uri, length(v_scheme) + 1);
    if strpos(v_key, '%') > 0 then
      select string_agg(plain.piece || case
          when t.triplet is null then ''
          when t.triplet[1] ~ c_unreserved then chr(get_byte(decode(substr(t.triplet[1], 2), 'hex'), 0))
          else upper(t.triplet[1] collate "C") end, '' order by plain.place)
      into v_key
      from regexp_split_to_table(v_key, c_triplet) with ordinality plain (piece, place)
      left join regexp_matches(v_key, c_triplet, 'g') with ordinality t (triplet, place) using (place);
    end if;
  end if;
  return fenceline.uri_encode_controls(v_key);
end $$;

-- What no key holds (controls, U+10FFFF) percent-encoded.
create or replace function fenceline.uri_encode_controls(p_text text) returns text language plpgsql immutable as $$
declare
  v_text text := p_text;
begin
  if v_text ~ '[\u0001-\u001f\u007f\U0010FFFF]' then
    for i in 1 .. 31 loop
      v_text := replace(v_text, chr(i), '%' || lpad(upper(to_hex(i)), 2, '0'));
    end loop;
    v_text := replace(replace(v_text, chr(127), '%7F'), chr(1114111), '%F4%8F%BF%BF');
  end if;
  return v_text;
end $$;

-- `cutAtSegments`.
create or replace function fenceline.uri_cut_at_segments(p_key text) returns text language sql immutable as $$
  select replace(h.head, ':', '/:') || regexp_replace(substr(p_key, length(h.head) + 1), '(?<=/):|[?#]', '/\&', 'g') || '/'
  from (select substring(p_key from '^[^/?#]*') as head) h
$$;

-- `foldedUri`.
-- Result: null where SQL cannot fold it (above).
create or replace function fenceline.uri_folded(p_uri text) returns text language plpgsql immutable as $$
declare
  v_decoded text := fenceline.trimmed(fenceline.uri_decoded(fenceline.uri_resource_key(p_uri)));
  v_scheme text := substring(v_decoded from '^[A-Za-z0-9+.-]+(?=:)');
  v_hierarchy text;
  v_rest text;
begin
  v_rest := case when v_scheme is null then v_decoded else substr(v_decoded, length(v_scheme) + 2) end;
  v_hierarchy := substring(v_rest from '^[^\u0001\u0002]*');
  v_rest := translate(substr(v_rest, length(v_hierarchy) + 1), chr(1) || chr(2), '?#');
  v_scheme := lower(v_scheme collate "C");
  return fenceline.uri_encode_controls(
    coalesce(v_scheme || ':', '') || fenceline.uri_folded_hierarchy(coalesce(v_scheme, ''), v_hierarchy) || v_rest);
end $$;

-- Without the white space that JavaScript trims.
create or replace function fenceline.trimmed(p_text text) returns text language sql immutable as $$
  select btrim(p_text, U&'\0009\000A\000B\000C\000D\0020\00A0\1680\2000\2001\2002\2003\2004\2005\2006\2007\2008\2009\200A\2028\2029\202F\205F\3000\FEFF')
$$;

-- Percent-decoded until nothing is left to decode, `\` as `/`, in NFC; a `?` and a `#` that were written as themselves are
-- chr(1) and chr(2). One pass with a stack, as `decodeUntilStable`: a URI of 20 kB of `%2525…` takes no longer than another.
-- Result: null where PostgreSQL 15 does not know how to normalise it.
create or replace function fenceline.uri_decoded(p_key text) returns text language plpgsql immutable as $$
declare
  c_utf8 constant text := '%C[2-9A-F]%[89AB][0-9A-F]|%D[0-9A-F]%[89AB][0-9A-F]|%E0%[AB][0-9A-F]%[89AB][0-9A-F]'
    '|%E[1-9A-CEF](?:%[89AB][0-9A-F]){2}|%ED%[89][0-9A-F]%[89AB][0-9A-F]|%F0%[9AB][0-9A-F](?:%[89AB][0-9A-F]){2}'
    '|%F[1-3](?:%[89AB][0-9A-F]){3}|%F4%8[0-9A-F](?:%[89AB][0-9A-F]){2}';
  v_text text := translate(p_key, '?#\', chr(1) || chr(2) || '/');
  v_stack text[] := '{}';
  v_top int := 0;
  v_next text;
  v_triplet text;
  v_code int;
begin
  if strpos(v_text, '%') > 0 then
    foreach v_next in array string_to_array(v_text, null) loop
      loop
        v_top := v_top + 1;
        v_stack[v_top] := case v_next when '\' then '/' else v_next end;
        exit when v_top < 3 or v_stack[v_top - 2] <> '%';
        v_triplet := v_stack[v_top - 2] || v_stack[v_top - 1] || v_stack[v_top];
        exit when v_triplet !~ '^%[0-9A-Fa-f]{2}$';
        v_code := get_byte(decode(substr(v_triplet, 2), 'hex'), 0);
        if v_code >= 128 then
          v_stack[v_top - 1] := upper(v_stack[v_top - 1] collate "C");
          v_stack[v_top] := upper(v_stack[v_top] collate "C");
          exit;
        end if;
        v_top := v_top - 3;
        exit when v_code < 32 or v_code = 127;
        v_next := chr(v_code);
      end loop;
    end loop;
    v_text := array_to_string(v_stack[1 : v_top], '');
    if v_text ~ c_utf8 then
      select string_agg(plain.piece || case
          when s.sequence is null then ''
          else convert_from(decode(replace(s.sequence[1], '%', ''), 'hex'), 'UTF8') end, '' order by plain.place)
      into v_text
      from regexp_split_to_table(v_text, c_utf8) with ordinality plain (piece, place)
      left join regexp_matches(v_text, c_utf8, 'g') with ordinality s (sequence, place) using (place);
    end if;
  end if;
  -- What Unicode 15 to 17 brought that composes, decomposes or changes its place.
  if v_text ~ ('[\u0897\u1ACF-\u1ADD\u1AE0-\u1AEB\U000105C9-\U000105E4\U00010D69-\U00010D6D\U00010EFA-\U00010EFF'
      '\U00011382-\U000113D0\U00011F41\U00011F42\U0001611E-\U0001612F\U00016D63-\U00016D6A\U0001E08F\U0001E4EC-\U0001E4EF'
      '\U0001E5EE\U0001E5EF\U0001E6E3-\U0001E6F5]') then
    return null;
  end if;
  return normalize(v_text, nfc);
end $$;

-- `foldHierarchy`: authority and path, without query and fragment.
-- Result: null where the authority cannot be folded.
create or replace function fenceline.uri_folded_hierarchy(p_scheme text, p_hierarchy text) returns text language plpgsql immutable strict as $$
declare
  v_web constant boolean := p_scheme in ('http', 'https', 'ws', 'wss', 'ftp');
  v_rest text;
  v_authority text;
  v_path text;
begin
  if not v_web and not starts_with(p_hierarchy, '//') then
    return fenceline.uri_folded_path(p_hierarchy);
  end if;
  v_rest := case when v_web then ltrim(p_hierarchy, '/') else substr(p_hierarchy, 3) end;
  v_authority := substring(v_rest from '^[^/]*');
  v_path := fenceline.uri_folded_path(substr(v_rest, length(v_authority) + 1));
  v_authority := fenceline.uri_folded_authority(p_scheme, v_authority);
  return case when v_authority = '' then v_path
    else '//' || v_authority || case v_path when '/' then '' else v_path end end;
end $$;

-- `foldAuthority`.
-- Result: null where SQL cannot.
create or replace function fenceline.uri_folded_authority(p_scheme text, p_authority text) returns text language plpgsql immutable as $$
declare
  v_lower text := fenceline.uri_lower(p_authority);
  v_parts text[];
  v_port text;
begin
  if v_lower is null or v_lower = '' or p_scheme not in ('http', 'https', 'ws', 'wss', 'ftp', 'file') then
    return v_lower;
  end if;
  if v_lower ~ '[^\u0001-\u007f]' then
    return null;
  end if;
  if v_lower ~ '[ %?#]' then
    return v_lower;
  end if;
  v_parts := regexp_match(v_lower, case p_scheme when 'file' then '^([a-z0-9_-]+(?:\.[a-z0-9_-]+)*)()$'
    else '^(?:.*@)?([a-z0-9_-]+(?:\.[a-z0-9_-]+)*)(?::([0-9]*))?$' end);
  v_port := regexp_replace(coalesce(v_parts[2], ''), '^0+(?=[0-9])', '');
  if v_parts is null or v_parts[1] ~ '(^|\.)xn--' or length(v_port) > 5 or v_port > '' and v_port::int > 65535
    -- A last label that is a number makes it an IPv4 address to the URL standard.
    or v_parts[1] ~ '(^|\.)([0-9]+|0x[0-9a-f]*)$'
      and v_parts[1] !~ '^((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(\.(?!$)|$)){4}$' then
    return null;
  end if;
  if p_scheme = 'file' then
    return case v_parts[1] when 'localhost' then '' else v_parts[1] end;
  end if;
  return v_parts[1] || case
    when v_port = '' or (p_scheme, v_port) in (('http', '80'), ('ws', '80'), ('https', '443'), ('wss', '443'), ('ftp', '21'))
    then '' else ':' || v_port end;
end $$;

-- `toLowerCase` and NFC, for Latin, Greek and Cyrillic up to U+052F, and for what has no case.
-- Result: null where another letter may have one.
create or replace function fenceline.uri_lower(p_text text) returns text language sql immutable as $$
  select case
    when p_text !~ '[^\u0001-\u007f]' then lower(p_text collate "C")
    -- U+0130 becomes two characters, U+03A3 depends on what follows.
    when p_text !~ ('[\u0130\u03A3\u0531-\u0556\u10A0-\u10FF\u13A0-\u13F5\u1C80-\u1CBF\u1E00-\u1FFF\u2126-\u2183\u24B6-\u24CF'
        '\u2C00-\u2CFF\uA640-\uA69F\uA720-\uA7FF\uFF21-\uFF3A\U00010400-\U0001EFFF]') then
      normalize(lower(translate(p_text,
        'ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓÔÕÖØÙÚÛÜÝÞĀĂĄĆĈĊČĎĐĒĔĖĘĚĜĞĠĢĤĦĨĪĬĮĲĴĶĹĻĽĿŁŃŅŇŊŌŎŐŒŔŖŘŚŜŞŠŢŤŦŨŪŬŮŰŲŴŶŸŹŻŽƁƂƄƆƇƉƊƋƎƏƐƑƓƔƖƗƘƜƝƟƠƢƤƦƧƩƬƮƯƱƲƳƵƷƸƼǄǅǇǈǊǋǍǏǑǓǕǗǙǛǞǠǢǤǦǨǪǬǮǱǲǴǶǷǸǺǼǾȀȂȄȆȈȊȌȎȐȒȔȖȘȚȜȞȠȢȤȦȨȪȬȮȰȲȺȻȽȾɁɃɄɅɆɈɊɌɎͰͲͶͿΆΈΉΊΌΎΏΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΤΥΦΧΨΩΪΫϏϘϚϜϞϠϢϤϦϨϪϬϮϴϷϹϺϽϾϿЀЁЂЃЄЅІЇЈЉЊЋЌЍЎЏАБВГДЕЖЗИЙКЛМНОПРСТУФХЦЧШЩЪЫЬЭЮЯѠѢѤѦѨѪѬѮѰѲѴѶѸѺѼѾҀҊҌҎҐҒҔҖҘҚҜҞҠҢҤҦҨҪҬҮҰҲҴҶҸҺҼҾӀӁӃӅӇӉӋӍӐӒӔӖӘӚӜӞӠӢӤӦӨӪӬӮӰӲӴӶӸӺӼӾԀԂԄԆԈԊԌԎԐԒԔԖԘԚԜԞԠԢԤԦԨԪԬԮ',
        'àáâãäåæçèéêëìíîïðñòóôõöøùúûüýþāăąćĉċčďđēĕėęěĝğġģĥħĩīĭįĳĵķĺļľŀłńņňŋōŏőœŕŗřśŝşšţťŧũūŭůűųŵŷÿźżžɓƃƅɔƈɖɗƌǝəɛƒɠɣɩɨƙɯɲɵơƣƥʀƨʃƭʈưʊʋƴƶʒƹƽǆǆǉǉǌǌǎǐǒǔǖǘǚǜǟǡǣǥǧǩǫǭǯǳǳǵƕƿǹǻǽǿȁȃȅȇȉȋȍȏȑȓȕȗșțȝȟƞȣȥȧȩȫȭȯȱȳⱥȼƚⱦɂƀʉʌɇɉɋɍɏͱͳͷϳάέήίόύώαβγδεζηθικλμνξοπρτυφχψωϊϋϗϙϛϝϟϡϣϥϧϩϫϭϯθϸϲϻͻͼͽѐёђѓєѕіїјљњћќѝўџабвгдежзийклмнопрстуфхцчшщъыьэюяѡѣѥѧѩѫѭѯѱѳѵѷѹѻѽѿҁҋҍҏґғҕҗҙқҝҟҡңҥҧҩҫҭүұҳҵҷҹһҽҿӏӂӄӆӈӊӌӎӑӓӕӗәӛӝӟӡӣӥӧөӫӭӯӱӳӵӷӹӻӽӿԁԃԅԇԉԋԍԏԑԓԕԗԙԛԝԟԡԣԥԧԩԫԭԯ') collate "C"), nfc)
  end
$$;

-- `foldPath`: `.` and `..` resolved, repeated and trailing slashes gone.
create or replace function fenceline.uri_folded_path(p_path text) returns text language plpgsql immutable strict as $$
declare
  v_segments text[] := '{}';
  v_depth int := 0;
  v_segment text;
begin
  foreach v_segment in array string_to_array(p_path, '/') loop
    if v_segment = '..' then
      v_depth := greatest(v_depth - 1, 0);
    elsif v_segment not in ('', '.') then
      v_depth := v_depth + 1;
      v_segments[v_depth] := v_segment;
    end if;
  end loop;
  return case when starts_with(p_path, '/') then '/' else '' end || array_to_string(v_segments[1 : v_depth], '/');
end $$;

-- The texts of a scope: `formatUriScope`, `scopeKey` and `scopeMatchKey`. Both null: everything.
--   p_uri, p_prefix  as the caller named them, at most one; errors name the argument
create or replace function fenceline.scope_texts(p_uri text, p_prefix text, out scope_text text, out key_text text, out match_text text)
language plpgsql immutable as $$
begin
  if p_uri is not null and p_prefix is not null then
    raise exception 'both uri and prefix are given' using errcode = 'invalid_parameter_value',
      hint = 'Name one URI, or one prefix; leave out both for everything.';
  end if;
  if p_uri is null and p_prefix is null then
    scope_text := 'everything';
    key_text := '';
    match_text := '';
    return;
  end if;
  scope_text := case when p_uri is null then 'prefix=' || p_prefix else 'uri=' || p_uri end;
  perform fenceline.require_scope(p_uri, p_prefix);
  key_text := fenceline.uri_resource_key(coalesce(p_uri, p_prefix));
  match_text := fenceline.uri_folded(coalesce(p_uri, p_prefix));
  if match_text is null then
    raise exception 'the % % has a host, letters or characters that SQL cannot fold as Fenceline does',
      case when p_uri is null then 'prefix' else 'uri' end, left(coalesce(p_uri, p_prefix), 200)
      using errcode = 'invalid_parameter_value',
        hint = 'Revoke it through the API or the command line, or revoke everything of the source here.';
  end if;
  if p_uri is not null then
    key_text := fenceline.uri_cut_at_segments(key_text) || chr(1);
    match_text := fenceline.uri_cut_at_segments(match_text) || chr(1);
    return;
  end if;
  key_text := fenceline.uri_cut_at_segments(fenceline.without_trailing_separator(key_text));
  match_text := fenceline.uri_cut_at_segments(fenceline.without_trailing_separator(match_text));
  if greatest(fenceline.utf16_length(key_text), fenceline.utf16_length(match_text)) > 600 then
    raise exception 'the prefix %… has more than 600 characters', left(p_prefix, 80)
      using errcode = 'invalid_parameter_value', hint = 'Use a shorter prefix, or name the URI.';
  end if;
end $$;

-- What can be told before it is folded.
create or replace function fenceline.require_scope(p_uri text, p_prefix text) returns void language plpgsql immutable as $$
begin
  if p_uri = '' or p_prefix = '' then
    raise exception 'the % is empty', case when p_uri is null then 'prefix' else 'uri' end
      using errcode = 'invalid_parameter_value', hint = 'Name one, or leave it out (null) for everything.';
  end if;
  if fenceline.utf16_length(coalesce(p_uri, p_prefix)) > 8192 then
    raise exception 'the % has more than 8192 characters', case when p_uri is null then 'prefix' else 'uri' end
      using errcode = 'invalid_parameter_value', hint = 'No source lists a longer one.';
  end if;
  if p_prefix ~ '[?#]$' then
    raise exception 'the prefix % does not end at a segment bound', left(p_prefix, 200)
      using errcode = 'invalid_parameter_value', hint = 'Leave out its last character to cover what is below it.';
  end if;
end $$;

-- `p/` and `p` name one segment, and so do `urn:a:` and `urn:a`.
create or replace function fenceline.without_trailing_separator(p_prefix text) returns text language sql immutable as $$
  select case when right(p_prefix, 1) = '/' or p_prefix ~ '^[^/?#]*:$' then left(p_prefix, -1) else p_prefix end
$$;

-- Length in UTF-16 code units, which bounds lookup texts.
create or replace function fenceline.utf16_length(p_text text) returns int language sql immutable as $$
  select length(p_text) + length(regexp_replace(p_text, '[^\U00010000-\U0010FFFF]', '', 'g'))
$$;

-- The keys that begin with a scope's text lie in [from, to): `textRange`.
create or replace function fenceline.scope_range(p_text text, out range_from text, out range_to text) language sql immutable as $$
  select case when right(p_text, 1) = chr(1) then left(p_text, -1) else p_text end,
         case when p_text = '' then chr(1114111)
           when right(p_text, 1) = chr(1) then p_text
           else left(p_text, -1) || '0' end
$$;

-- What a scope's text is looked up by: `hashPrefix`.
--   p_source  0: every source
create or replace function fenceline.hash_prefix(p_source int, p_text text) returns bigint language sql immutable as $$
  select ('x' || encode(substr(sha256(convert_to(p_source || E'\n' || p_text, 'UTF8')), 1, 8), 'hex'))::bit(64)::bigint
$$;
