/* slots.pml: one slot and its generations. A body moves only into its own slot, and what a step reads is
 * what was admitted, over late heads, slow bodies, expired places, zombies and a new coordinator.
 *
 * One slot on two shards, fought over by all gradients; several slots meet only in the log, for which the
 * record OTHER stands (whatever else is appended: other slots' records, JOIN, TUNE). commit.pml shows that
 * there is one log and that a new coordinator has all of it, so here each shard has a length only and the
 * content is in one place, `log`; that no shard logs anything else is asserted again.
 *
 * The network is a soup, as in commit.pml. A worker needs no process: once it was sent a PLACE its heads may
 * come at any time, to any shard, as often as they like, or never. A body takes time: FLYING is between TAKE
 * and its end, and cannot be cancelled. Taking has a price: while a body moves the old content is gone. */
#define SHARDS 2
#ifndef GRADIENTS
#define GRADIENTS 2
#endif
#ifndef RECORDS
#define RECORDS 4
#endif
#ifndef EPOCHS
#define EPOCHS 2
#endif
#ifndef PLACES
#define PLACES 2 /* generations that each coordinator gives out, but for the last one: */
#endif
#ifndef PLACES_LAST
#define PLACES_LAST PLACES
#endif
#define GENERATIONS ((EPOCHS - 1) * PLACES + PLACES_LAST)

/* Records as numbers: ADMIT(g) = g, REFUSE(g) = GENERATIONS + g, both by generation, from 1. */
#define ADMIT(g) (g)
#define REFUSE(g) (GENERATIONS + (g))
#define STEP (2 * GENERATIONS + 1)
#define OTHER (2 * GENERATIONS + 2)
#define is_admit(x) ((x) >= 1 && (x) <= GENERATIONS)
#define is_refuse(x) ((x) > GENERATIONS && (x) <= 2 * GENERATIONS)

#define epoch_of(g) (((g) - 1) / PLACES + 1) /* a generation begins with its epoch */
#define bit(set, i) (((set) >> (i)) & 1)
#define at(e, s) ((e) * SHARDS + (s))
#define AT_MAX ((EPOCHS + 1) * SHARDS)
#define CLOSES ((EPOCHS + 1) * (GENERATIONS + 1))
#define close_at(e, g) ((e) * (GENERATIONS + 1) + (g))

/* Shards. */
byte promised[SHARDS];
byte logged[SHARDS];
byte applied[SHARDS];
byte generation[SHARDS];      /* the slot's present use, 0: none */
byte freed[SHARDS];           /* the last generation that was freed */
bool here[SHARDS];            /* its body is complete, and LANDED was said */
byte closing[SHARDS];         /* the generation that a CLOSE ends, 0: none */
byte close_after[SHARDS];     /* ... once so many records are applied */
byte flying[SHARDS];          /* generations whose body moves into the slot now (bit set) */
#define TORN 255
byte content[SHARDS];         /* whose bytes are in the slot: gradient + 1, TORN while one moves */

/* Messages. */
byte named[GENERATIONS + 1];  /* PLACE(g): for which gradient + 1, 0: not given */
bool seal[EPOCHS + 1];
bool sealed[AT_MAX];          /* SEALED(e, s), with the log's length and the slot as it was: */
byte sealed_length[AT_MAX];
byte sealed_generation[AT_MAX];
bool sealed_here[AT_MAX];     /* complete, and nobody has closed it */
byte sent[(EPOCHS + 1) * RECORDS];
byte close[CLOSES];           /* CLOSE(e, g): after + 1, 0: not sent */
byte said_landed[AT_MAX];     /* LANDED(e, s, g), a bit set */
byte said_freed[AT_MAX];      /* FREED(e, s, g), a bit set */

byte log[RECORDS];            /* the one log: what any shard logged first at each index */
byte log_length;

hidden byte k;
hidden byte n;
hidden byte last;
hidden byte may;

/* May this head open or continue the slot's use? */
#ifdef MUTANT_HEAD_UNFENCED
#define is_current(s, g) true
#else
#define is_current(s, g) (epoch_of(g) == promised[s])
#endif
#ifdef MUTANT_GENERATION_IGNORED
#define is_this_use(s, g) true
#else
#define is_this_use(s, g) ((g) > freed[s] && (generation[s] == 0 || generation[s] == (g)))
#endif
#define head_fits(s, g) \
    (named[g] != 0 && is_current(s, g) && is_this_use(s, g) && closing[s] == 0 && !here[s] && !bit(flying[s], g))

inline take(s, g)
{
    if :: generation[s] == 0 -> generation[s] = g :: else fi;
    flying[s] = flying[s] | (1 << g);
    content[s] = TORN
}

/* A body's end says nothing of its generation: the shard counts bytes. */
inline land(s, g)
{
    flying[s] = flying[s] & (255 - (1 << g));
    content[s] = named[g];
    if
    :: generation[s] != 0 && closing[s] == 0 ->
        here[s] = true;
        said_landed[at(promised[s], s)] = said_landed[at(promised[s], s)] | (1 << generation[s])
    :: else
    fi
}

#ifdef MUTANT_FREED_WHILE_FLYING
#define is_still(s) true
#else
#define is_still(s) (flying[s] == 0)
#endif
#ifdef MUTANT_FREED_UNREAD
#define is_read(s) true
#else
#define is_read(s) (applied[s] >= close_after[s])
#endif

inline free_when_due(s)
{
    if
    :: closing[s] != 0 && is_still(s) && is_read(s) ->
        said_freed[at(promised[s], s)] = said_freed[at(promised[s], s)] | (1 << closing[s]);
        freed[s] = closing[s];
        closing[s] = 0;
        close_after[s] = 0;
        generation[s] = 0;
        here[s] = false
    :: else
    fi
}

/* What is said twice is answered twice. */
inline take_close(s, e, g)
{
    if
    :: g <= freed[s] -> said_freed[at(promised[s], s)] = said_freed[at(promised[s], s)] | (1 << g)
    :: else ->
        closing[s] = g;
        close_after[s] = close[close_at(e, g)] - 1;
        free_when_due(s)
    fi
}

/* Both shards follow newer epochs: whatever e says is refused by number. Mutants that lack a number keep it. */
#define is_fenced(e) (promised[0] > (e) && promised[1] > (e))

#ifdef MUTANT_CLOSE_UNFENCED
#define kept(x) x
#else
#define kept(x) 0
#endif

inline forget_fenced()
{
    for (n : 1 .. EPOCHS - 1) {
        if
        :: is_fenced(n) ->
            for (k : 0 .. GENERATIONS) {
                close[close_at(n, k)] = kept(close[close_at(n, k)])
            }
            for (k : 0 .. RECORDS - 1) {
                sent[n * RECORDS + k] = 0
            }
            said_landed[at(n, 0)] = 0;
            said_landed[at(n, 1)] = 0;
            said_freed[at(n, 0)] = 0;
            said_freed[at(n, 1)] = 0
        :: else
        fi
    }
    n = 0
}

inline take_seal(s, e)
{
    promised[s] = e;
    forget_fenced();
#ifndef MUTANT_CLOSE_OUTLIVES_SEAL
    /* A CLOSE that waits for a record which is not logged here may wait for one that never was: the index
     * means something else in the next epoch, whose coordinator closes again. */
    if
    :: closing[s] != 0 && close_after[s] > logged[s] ->
        closing[s] = 0;
        close_after[s] = 0
    :: else
    fi;
#endif
    sealed_length[at(e, s)] = logged[s];
    sealed_generation[at(e, s)] = generation[s];
#ifndef MUTANT_CLOSING_UNTOLD
    /* A use that no head ever opened here is still a use while its CLOSE waits. */
    if :: closing[s] != 0 -> sealed_generation[at(e, s)] = closing[s] :: else fi;
#endif
    sealed_here[at(e, s)] = here[s] && closing[s] == 0;
    sealed[at(e, s)] = true
}

/* What the log says of a generation's gradient before index i: the last generation admitted and whether a step
 * has read it. W = S = 1: a step reads the last admitted gradient. */
inline last_admitted(i)
{
    last = 0;
    for (k : 0 .. i - 1) {
        if :: is_admit(log[k]) -> last = log[k] :: else fi
    }
}

inline take_record(s, e)
{
    n = sent[e * RECORDS + logged[s]];
    if
    :: logged[s] < log_length -> assert(log[logged[s]] == n)
    :: else ->
        log[logged[s]] = n;
        log_length++
    fi;
    logged[s] = logged[s] + 1;
    n = 0
}

/* A STEP takes its time, and so may OTHER, a step of other slots; verdicts are applied when it is their turn. */
#define is_slow(x) ((x) == STEP || (x) == OTHER)

inline apply_verdicts(s)
{
    for (k : applied[s] .. RECORDS - 1) {
        if :: k == applied[s] && k < logged[s] && !is_slow(log[k]) -> applied[s] = k + 1 :: else fi
    }
    free_when_due(s)
}

inline apply_slow(s)
{
    if
    :: log[applied[s]] == STEP ->
        last_admitted(applied[s]);
        assert(generation[s] == last);
        assert(content[s] == named[last])               /* what is read is what was admitted */
    :: else
    fi;
    applied[s] = applied[s] + 1;
    last = 0;
    apply_verdicts(s)
}

/* What may happen with generation g. */
#define ANY_GENERATION(g) \
    :: d_step { head_fits(s, g) -> take(s, g) } \
    :: d_step { bit(flying[s], g) -> land(s, g); free_when_due(s) } \
    :: d_step { bit(flying[s], g) -> flying[s] = flying[s] & (255 - (1 << g)); free_when_due(s) } \
    :: d_step { close[close_at(promised[s], g)] != 0 && generation[s] <= (g) -> take_close(s, promised[s], g) }

#define OLD_CLOSE(g) \
    :: d_step { close[close_at(1, g)] != 0 && generation[s] <= (g) -> take_close(s, 1, g) }

#define ANY_EPOCH(e) \
    :: d_step { seal[e] && promised[s] < (e) -> take_seal(s, e) }

proctype Shard(byte s)
{
    do
    ANY_GENERATION(1)
    ANY_GENERATION(2)
#if GENERATIONS > 2
    ANY_GENERATION(3)
#endif
#if GENERATIONS > 3
    ANY_GENERATION(4)
#endif
#if GENERATIONS > 4
    ANY_GENERATION(5)
#endif
#if GENERATIONS > 5
    ANY_GENERATION(6)
#endif
#ifdef MUTANT_CLOSE_UNFENCED
    OLD_CLOSE(1)
#endif
    ANY_EPOCH(2)
#if EPOCHS > 2
    ANY_EPOCH(3)
#endif
    :: d_step {
        logged[s] < RECORDS && sent[promised[s] * RECORDS + logged[s]] != 0 ->
        take_record(s, promised[s]);
        apply_verdicts(s)
    }
    :: d_step { applied[s] < logged[s] && is_slow(log[applied[s]]) -> apply_slow(s) }
    od
}

#if defined(MUTANT_FREED_BY_ONE)
#define is_freed(e, g) (bit(said_freed[at(e, 0)], g) || bit(said_freed[at(e, 1)], g))
#elif defined(MUTANT_FREED_UNASKED)
#define is_freed(e, g) true
#else
#define is_freed(e, g) (bit(said_freed[at(e, 0)], g) && bit(said_freed[at(e, 1)], g))
#endif

/* How a slot lives at the coordinator. */
#define FREE 0
#define PLACED 1
#define WINDOW 2
#define CLOSING 3

inline append(e, x)
{
    sent[e * RECORDS + length] = x;
    length++
}

inline close_slot(e, after)
{
    state = CLOSING;
    close[close_at(e, use)] = (after) + 1
}

/* Has gradient x (+ 1) its verdict in this coordinator's log? */
inline find_verdict(e, x)
{
    last = 0;
    for (k : 0 .. length - 1) {
        n = sent[e * RECORDS + k];
        if
        :: is_admit(n) && named[n] == x -> last = n
        :: is_refuse(n) && named[n - GENERATIONS] == x -> last = n
        :: else
        fi
    }
    n = 0
}

/* A new coordinator knows the log and what the shards hold; what was placed and has not arrived it cannot
 * know, and need not: those heads are of an older epoch. */
inline adopt(e)
{
    length = (sealed_length[at(e, 0)] > sealed_length[at(e, 1)] -> sealed_length[at(e, 0)] : sealed_length[at(e, 1)]);
    for (k : 0 .. length - 1) {
        sent[e * RECORDS + k] = log[k];
        if
        :: is_admit(log[k]) ->
            state = WINDOW;
            fresh = true;
            use = log[k]
        :: log[k] == STEP ->
            state = FREE;
            fresh = false
        :: else
        fi
    }
#ifdef MUTANT_WINDOW_FORGOTTEN
    state = FREE;
#endif
    if
    :: state == FREE ->
        use = (sealed_generation[at(e, 0)] > sealed_generation[at(e, 1)] -> sealed_generation[at(e, 0)] : sealed_generation[at(e, 1)]);
        if
        :: use != 0 ->
            find_verdict(e, named[use]);
            if
            :: last == 0 && sealed_here[at(e, 0)] && sealed_here[at(e, 1)] && sealed_generation[at(e, 0)] == sealed_generation[at(e, 1)] ->
                state = PLACED;
                landed = 3
            :: else -> close_slot(e, length)
            fi
        :: else
        fi
    :: else
    fi;
    for (k : 0 .. SHARDS - 1) {
        sealed_length[at(e, k)] = 0;
        sealed_generation[at(e, k)] = 0;
        sealed_here[at(e, k)] = false
    }
    last = 0
}

/* If all became calm now, would the slot come free again, and would a place be of use? For the last coordinator,
 * once both have promised. Changes nothing. */
inline assert_calm_ends_well(e, s)
{
    if
    :: state == CLOSING && !bit(said_freed[at(e, s)], use) ->
        assert(generation[s] <= use);
        assert(close[close_at(e, use)] - 1 <= length)
    :: state == FREE ->
        assert(generation[s] == 0 && flying[s] == 0)
    :: state == PLACED && !bit(said_landed[at(e, s)], use) && landed == 0 ->
        assert(generation[s] == 0 || generation[s] == use);
        assert(closing[s] == 0 && freed[s] < use)
    :: else
    fi
}

/* PLACE for a gradient that has no verdict. */
inline place(e, x)
{
    given++;
    use = (e - 1) * PLACES + given;
    named[use] = x;
    state = PLACED;
    landed = 0;
    /* Nothing touches what is given out. */
    assert(promised[0] > e || promised[1] > e || (flying[0] == 0 && flying[1] == 0))
}

/* The gradients are alike: the first that gets a place is called 1. */
inline judge_place(x)
{
    may = (x == 1);
    for (k : 1 .. GENERATIONS) {
        if :: named[k] != 0 -> may = true :: else fi
    }
    if
    :: may -> find_verdict(e, x); may = (last == 0); last = 0
    :: else
    fi
}

#define ANY_GRADIENT(g) \
    :: d_step { \
        !is_fenced(e) && state == FREE && given < (e < EPOCHS -> PLACES : PLACES_LAST) -> \
        judge_place(g); \
        if :: may -> place(e, g) :: else fi; \
    }

proctype Coordinator(byte e)
{
    byte length, state, use, given;
    bool fresh;  /* the law's window: an ADMIT that no STEP has read */
    bool others; /* one OTHER of each coordinator is enough to move what follows */
    byte landed; /* shards that told of the body with SEALED (bit set) */
    if
    :: e > 1 -> seal[e] = true
    :: else -> goto begun
    fi;
    (sealed[at(e, 0)] && sealed[at(e, 1)]);
    d_step { adopt(e) };
begun:
    do
    ANY_GRADIENT(1)
    ANY_GRADIENT(2)
    :: d_step { /* ADMIT: landed everywhere, in this epoch or told with SEALED */
        !is_fenced(e) && state == PLACED && length < RECORDS &&
        (landed == 3 || (bit(said_landed[at(e, 0)], use) && bit(said_landed[at(e, 1)], use))) ->
        append(e, ADMIT(use));
        state = WINDOW;
        fresh = true
    }
    :: d_step { /* REFUSE: its head says stale, its deadline has passed, ... */
        !is_fenced(e) && state == PLACED && length < RECORDS ->
        append(e, REFUSE(use));
        close_slot(e, length)
    }
    :: d_step { !is_fenced(e) && state == PLACED -> close_slot(e, length) } /* the place expires unused */
    :: d_step { /* STEP, after which nobody reads the slot */
        !is_fenced(e) && fresh && length < RECORDS ->
        append(e, STEP);
        fresh = false;
        if :: state == WINDOW -> close_slot(e, length) :: else fi
    }
    :: d_step { !is_fenced(e) && !others && length < RECORDS -> append(e, OTHER); others = true }
    :: d_step {
        !is_fenced(e) && state == CLOSING && is_freed(e, use) ->
        said_landed[at(e, 0)] = 0;
        said_landed[at(e, 1)] = 0;
        said_freed[at(e, 0)] = 0;
        said_freed[at(e, 1)] = 0;
        close[close_at(e, use)] = 0; /* a late one would only be answered again */
        state = FREE;
        use = 0;
        landed = 0
    }
    :: d_step {
        is_fenced(e) ->
        length = 0; state = FREE; use = 0; given = 0; landed = 0; fresh = false; others = false
    } -> break
    :: d_step {
        e == EPOCHS && promised[0] == e && promised[1] == e ->
        assert_calm_ends_well(e, 0);
        assert_calm_ends_well(e, 1)
    }
    od
}

init
{
    atomic {
        promised[0] = 1; /* it all begins with an epoch that has nothing to adopt */
        promised[1] = 1;
        run Shard(0);
        run Shard(1);
        run Coordinator(1);
        run Coordinator(2);
#if EPOCHS > 2
        run Coordinator(3)
#endif
    }
}
