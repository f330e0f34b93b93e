/* sums.pml: a step with whole-model numbers in it (the norm of the average), over shards, epochs, timelines.
 *
 * STEP is logged, each shard says its SUMS and applies nothing past that record; the coordinator appends
 * SUMMED with the factor that follows from all of them; then the step ends. A new coordinator asks again.
 *
 * commit.pml shows that there is one log and that a new coordinator has all of it; so the records stand in
 * one place for each timeline, and a shard has lengths only. With -DLOSS a shard may lose its memory: then all
 * go back to the cut (here: the empty log) and timeline + 1 begins, in which the same versions come again with
 * other content. What floats would do is done by a small number: every record that is applied changes it, in
 * a way that depends on the order, and all shards must have the same one after the same records.
 *
 * The network is a soup, as in commit.pml. A zombie stops once both shards follow a newer epoch: nobody reads
 * what it would say; what it has said before may still arrive. */
#define SHARDS 2
#ifndef EPOCHS
#define EPOCHS 2
#endif
#ifndef RECORDS
#define RECORDS 5
#endif
#ifndef VERSIONS
#define VERSIONS 2
#endif

/* Records as numbers: STEP in two contents (which gradients it reads), OTHER (ADMIT, TUNE: whatever changes a
 * shard's state when it is applied), and SUMMED + factor. A record is sent as itself, 0 is none. */
#define STEP_A 1
#define STEP_B 2
#define OTHER 3
#define SUMMED 16
#define is_step(x) ((x) == STEP_A || (x) == STEP_B)
#define is_summed(x) ((x) >= SUMMED)
#define factor_of(x) ((x) - SUMMED)

/* State after a record: order matters. Sums of a step: of the state before it and of what it reads; each shard
 * has its own part, and the factor needs all of them. */
#define after(number, what) (((number) * 3 + (what)) % 61)
#define part_of(number, step, s) (((number) * 2 + (step)) % 61 + (s))
#define factor(first, second) ((first) + (second))

#define at(e, s) ((e) * SHARDS + (s))
#define AT_MAX ((EPOCHS + 1) * SHARDS)
#define sums_at(e, s, v) (at(e, s) * (VERSIONS + 1) + (v))
#define SUMS_MAX (AT_MAX * (VERSIONS + 1))

/* Shards. */
byte promised[SHARDS];
byte timeline[SHARDS];
byte logged[SHARDS];
byte applied[SHARDS];
byte version[SHARDS];          /* steps whose record was reached */
bool waiting[SHARDS];          /* at a STEP, for its SUMMED */
byte number[SHARDS];           /* what stands for the floats */

/* Messages. */
bool seal[EPOCHS + 1];
bool sealed[AT_MAX];           /* SEALED(e, s), with length, timeline, cold */
byte sealed_length[AT_MAX];
byte sealed_timeline[AT_MAX];
byte begins[EPOCHS + 1];       /* e goes on in this timeline (+ 1); 0: not known yet */
byte sent[(EPOCHS + 1) * RECORDS];
bool asked[EPOCHS + 1];        /* say your SUMS again */
byte said_sums[SUMS_MAX];      /* SUMS(e, s, v) + 1 */
#ifdef LOSS
bool cold[SHARDS];
bool sealed_cold[AT_MAX];
bool lost_once;
#define is_cold(s) cold[s]
#else
#define is_cold(s) false
#endif

/* The one log of each timeline, and the number after each record: what any shard did first. */
byte log[(EPOCHS + 1) * RECORDS];
byte log_length[EPOCHS + 1];
byte number_after[(EPOCHS + 1) * RECORDS]; /* + 1 */

hidden byte k;
hidden byte n;
hidden byte found;
hidden byte steps;

#define is_fenced(e) (promised[0] > (e) && promised[1] > (e))

/* The factor for this shard's step: SUMMED of the same version, wherever it stands in the shard's log. */
inline find_factor(s)
{
    found = 0;
    steps = 0;
    for (k : 0 .. logged[s] - 1) {
        n = log[timeline[s] * RECORDS + k];
        if
        :: is_step(n) -> steps++
        :: is_summed(n) && steps == version[s] && found == 0 -> found = n
        :: else
        fi
    }
    n = 0
}

/* A message carries epoch and timeline: the coordinator drops what is of another history. A shard that has
 * promised e may still be in the timeline that e has given up. */
#ifdef MUTANT_TIMELINE_IGNORED
#define is_history(s) true
#else
#define is_history(s) (begins[promised[s]] == timeline[s] + 1)
#endif

inline say_sums(s)
{
    if
    :: is_history(s) -> said_sums[sums_at(promised[s], s, version[s])] = 1 + part_of(number[s], log[timeline[s] * RECORDS + applied[s]], s)
    :: else
    fi
}

inline changed(s, what)
{
    number[s] = after(number[s], what);
    n = timeline[s] * RECORDS + applied[s];
    assert(number_after[n] == 0 || number_after[n] == number[s] + 1); /* all shards the same bits */
    number_after[n] = number[s] + 1;
    applied[s] = applied[s] + 1;
    n = 0
}

inline take_record(s)
{
    n = sent[promised[s] * RECORDS + logged[s]];
    if
    :: is_summed(n) -> /* one SUMMED for one STEP */
        steps = 0;
        for (k : 0 .. logged[s] - 1) {
            if
            :: is_step(log[timeline[s] * RECORDS + k]) -> steps++
            :: is_summed(log[timeline[s] * RECORDS + k]) -> steps--
            :: else
            fi
        }
        assert(steps == 1)
    :: else
    fi;
    if
    :: logged[s] < log_length[timeline[s]] -> assert(log[timeline[s] * RECORDS + logged[s]] == n)
    :: else ->
        log[timeline[s] * RECORDS + logged[s]] = n;
        log_length[timeline[s]] = logged[s] + 1
    fi;
    logged[s] = logged[s] + 1;
    n = 0
}

/* The record behind the last applied one. */
#define next_record(s) log[timeline[s] * RECORDS + applied[s]]

inline apply(s)
{
    if
    :: is_step(next_record(s)) ->
        version[s] = version[s] + 1;
        waiting[s] = true;
        say_sums(s)
    :: next_record(s) == OTHER -> changed(s, OTHER)
    :: else -> changed(s, 0) /* SUMMED was used when its step ended */
    fi
}

#ifdef MUTANT_STEP_UNSUMMED
#define may_end(s) true
#else
#define may_end(s) (found != 0)
#endif

inline end_step(s)
{
    find_factor(s);
    if
    :: may_end(s) ->
        if
        :: found != 0 -> /* the factor comes from the sums of this very step, in this history */
            assert(factor_of(found) == factor(part_of(number[s], next_record(s), 0), part_of(number[s], next_record(s), 1)))
        :: else
        fi;
        waiting[s] = false;
        changed(s, (found != 0 -> 4 + factor_of(found) : 4))
    :: else
    fi;
    found = 0; steps = 0
}

inline take_seal(s, e)
{
    promised[s] = e;
    sealed[at(e, s)] = true;
    sealed_length[at(e, s)] = logged[s];
    sealed_timeline[at(e, s)] = timeline[s]
#ifdef LOSS
    ; sealed_cold[at(e, s)] = cold[s]
#endif
}

inline begin_timeline(s, t)
{
    timeline[s] = t;
    logged[s] = 0;
    applied[s] = 0;
    version[s] = 0;
    waiting[s] = false;
    number[s] = 0
#ifdef LOSS
    ; cold[s] = false
#endif
}

#define ANY_EPOCH(e) \
    :: d_step { seal[e] && promised[s] < (e) -> take_seal(s, e) }

proctype Shard(byte s)
{
#ifdef MUTANT_APPLIED_PAST
    bool past;
#endif
    do
    ANY_EPOCH(1)
    ANY_EPOCH(2)
#if EPOCHS > 2
    ANY_EPOCH(3)
#endif
#ifdef LOSS
    :: d_step { !lost_once -> lost_once = true; begin_timeline(s, timeline[s]); cold[s] = true }
    :: d_step {
        begins[promised[s]] != 0 && (begins[promised[s]] - 1 != timeline[s]) ->
        begin_timeline(s, begins[promised[s]] - 1)
    }
#endif
    :: d_step {
        begins[promised[s]] == timeline[s] + 1 && !is_cold(s) && logged[s] < RECORDS &&
        sent[promised[s] * RECORDS + logged[s]] != 0 ->
        take_record(s)
    }
    :: d_step { !is_cold(s) && applied[s] < logged[s] && !waiting[s] -> apply(s) }
#ifdef MUTANT_APPLIED_PAST
    :: d_step { /* OTHER overtakes the step before it */
        waiting[s] && applied[s] + 1 < logged[s] && log[timeline[s] * RECORDS + applied[s] + 1] == OTHER && !past ->
        number[s] = after(number[s], OTHER);
        past = true
    }
#endif
    :: d_step { waiting[s] && !is_cold(s) -> end_step(s) }
    :: d_step { /* asked again, by the epoch that is followed now */
        waiting[s] && asked[promised[s]] && begins[promised[s]] == timeline[s] + 1 -> say_sums(s)
    }
    od
}

/* SUMS for version v as the coordinator has them. */
#ifdef MUTANT_SUMS_UNFENCED
inline collect(e, s, v)
{
    for (k : 1 .. e) {
        if :: said_sums[sums_at(k, s, v)] != 0 -> n = said_sums[sums_at(k, s, v)] :: else fi
    }
}
#else
inline collect(e, s, v)
{
    n = said_sums[sums_at(e, s, v)]
}
#endif

inline append(e, x)
{
    sent[e * RECORDS + length] = x;
    length++
}

inline append_summed(e)
{
    n = 0;
#ifdef MUTANT_VERSION_IGNORED
    if :: steps_sent > 1 -> collect(e, 0, steps_sent - 1) :: else -> collect(e, 0, steps_sent) fi;
#else
    collect(e, 0, steps_sent);
#endif
    found = n;
    n = 0;
#ifdef MUTANT_SUMS_OF_ONE
    n = found;
#else
    collect(e, 1, steps_sent);
#endif
    if
    :: found != 0 && n != 0 ->
        append(e, SUMMED + factor(found - 1, n - 1));
        stepping = false
    :: else
    fi;
    n = 0; found = 0
}

inline adopt(e)
{
    n = (sealed_timeline[at(e, 0)] > sealed_timeline[at(e, 1)] -> sealed_timeline[at(e, 0)] : sealed_timeline[at(e, 1)]);
    length = 0;
#ifdef LOSS
    if
    :: sealed_cold[at(e, 0)] || sealed_cold[at(e, 1)] || sealed_timeline[at(e, 0)] != sealed_timeline[at(e, 1)] -> n = e
    :: else ->
#endif
        length = (sealed_length[at(e, 0)] > sealed_length[at(e, 1)] -> sealed_length[at(e, 0)] : sealed_length[at(e, 1)])
#ifdef LOSS
    fi
#endif
    ;
    begins[e] = n + 1;
    for (k : 0 .. length - 1) {
        sent[e * RECORDS + k] = log[n * RECORDS + k];
        if
        :: is_step(log[n * RECORDS + k]) ->
            steps_sent++;
            stepping = true
        :: is_summed(log[n * RECORDS + k]) -> stepping = false
        :: else
        fi
    }
#ifdef MUTANT_SUMMED_TWICE
    stepping = steps_sent > 0;
#endif
#ifndef MUTANT_NOT_ASKED
    asked[e] = true;
#endif
    n = 0
}

/* If all became calm now, would a step that waits for sums get them? Changes nothing. */
inline assert_calm_ends_well(e, s)
{
    if
    :: stepping && begins[e] == timeline[s] + 1 && !is_cold(s) ->
        assert(said_sums[sums_at(e, s, steps_sent)] != 0 || asked[e] || !waiting[s] || version[s] < steps_sent)
    :: else
    fi
}

proctype Coordinator(byte e)
{
    byte length, steps_sent;
    bool stepping, other;
    seal[e] = true;
    (sealed[at(e, 0)] && sealed[at(e, 1)]);
    d_step { adopt(e) };
    do
    :: d_step { !is_fenced(e) && !stepping && steps_sent < VERSIONS && length + 1 < RECORDS -> append(e, STEP_A); steps_sent++; stepping = true }
    :: d_step { !is_fenced(e) && !stepping && steps_sent < VERSIONS && length + 1 < RECORDS -> append(e, STEP_B); steps_sent++; stepping = true }
    :: d_step { !is_fenced(e) && length + 1 < RECORDS && !other -> append(e, OTHER); other = true }
    :: d_step { !is_fenced(e) && stepping && length < RECORDS -> append_summed(e) }
    :: d_step {
        e == EPOCHS && promised[0] == e && promised[1] == e ->
        assert_calm_ends_well(e, 0);
        assert_calm_ends_well(e, 1)
    }
    :: d_step { is_fenced(e) -> length = 0; steps_sent = 0; stepping = false; other = false } -> break
    od
}

init
{
    atomic {
        run Shard(0);
        run Shard(1);
        run Coordinator(1);
        run Coordinator(2);
#if EPOCHS > 2
        run Coordinator(3)
#endif
    }
}
