/*
 * The protocol between the broker of a shared device and its apps, for the model checker SPIN. README.md explains it; ./check runs it.
 *
 * A `d_step` is what is one step in reality: one commit, one message sent, one file replaced. Between two of them everything else
 * may happen, a crash included. A process that is slow, or stopped by a signal, is one whose next step comes late: that needs no
 * rule of its own.
 */

/* ---- What is checked; ./check sets these ---- */

#ifndef APPS
#define APPS 2          /* 2 or 3; each is one process */
#endif
#ifndef SHARED
#define SHARED 0        /* 1: the two are processes of one app, with one record and one place for data; one that dies is gone */
#endif
#ifndef MAY_RETURN
#define MAY_RETURN 0    /* 1, beside SHARED: one that dies may be followed by a third */
#endif
#ifndef CONFIGURATIONS
#define CONFIGURATIONS 0    /* 1: the configuration may be broken at the first start, and be broken and mended while the broker runs or is away */
#endif
#ifndef SESSIONS
#define SESSIONS 3      /* sign-ins in a run */
#endif
#ifndef BROKER_CRASHES
#define BROKER_CRASHES 1
#endif
#ifndef APP_CRASHES
#define APP_CRASHES 1   /* of all apps together */
#endif

/* The policies: does the next sign-in wait for the cleanup? */
#define STRICT   1      /* as long as it takes */
#define TIMEOUT  2      /* for a while */
#define ADVISORY 3      /* no */
#ifndef POLICY
#define POLICY STRICT
#endif

#ifndef TOKENS
#define TOKENS 1        /* token requests of all apps together */
#endif
#ifndef WAIVERS
#define WAIVERS 0       /* how many duties an administrator may waive */
#endif
#ifndef MAY_STAY_DOWN
#define MAY_STAY_DOWN 0 /* 1: an app that crashed may never run again */
#endif

/* ---- Mutants: one broken rule each, which a property must catch ---- */

#define M1A_BROADCAST_BEFORE_COMMIT     1
#define M1B_ANSWER_BEFORE_HOLDS         2
#define M1C_SIGNED_OUT_BEFORE_COMMIT    3
#define M2_RECEIPT_BEFORE_DELETION      4
#define M3_RECORD_AFTER_DATA            5
#define M4_SIGN_IN_WHILE_OWED           6
#define M5_OLDER_ANSWER_ACCEPTED        7
#define M6A_RECORD_FORGETS_ON_REPORT    8
#define M6B_LEDGER_FORGETS_ON_REPORT    9
#define M7_SAME_USER_IS_NO_CHANGE      10
#define M8_CRASH_SETTLES               11
#define M9_TOKEN_FOR_DEBTOR            12
#define M10_WORK_OUTLIVES_CLEANUP      13
#define M11_SIGN_OUT_BY_USER           14
#define M12_TOKEN_BESIDE_STALE_DATA    15
#define M13_SILENT_LOSS                16
#define M14_NO_BROADCAST_AT_RESTART    17
#define M15_BROADCAST_LOST_WHILE_ASKING 18
#define M16_SIGN_IN_WITHOUT_HOLDS      19
#define M17_LOST_RECEIPT_NOT_REPEATED  20
#define M18_NO_QUESTION_AFTER_RECEIPT  21
#define M19_ONE_RECEIPT_FOR_ALL        22
#define M20_END_UNREPORTED_FORGOTTEN   23
#define M21_OTHERS_CLEANUP_IS_MINE     24
#define M22_RESTART_TRUSTS_RECEIPTS    26
#define M23_BROKEN_IS_DEFAULT          27
#define M24_NEVER_CONFIGURED_SIGNS_IN  28
#define M25_BROKEN_FORGETS_THE_LAST    29
#define M26_RECEIPT_ONLY_IF_RECORDED   30
#define M27_AGAIN_IS_NOT_SAID          31
#ifndef MUTANT
#define MUTANT 0
#endif
#define IS(mutant) (MUTANT == mutant)

/* ---- Words ---- */

/* A session is one stay of a user: 1, 2, 3. Its sign-in made the epoch 2s-1, its end makes it 2s. */
#define EPOCH(s) (2 * (s) - 1)
/* The first two sessions are of the same user. */
#define USER(s)  (((s) + 1) / 2)
/* Sets of sessions are bits; bit 0 stands for "nobody" and is in no set. */
#define BIT(s)   (1 << (s))
#define BELOW(s) (BIT(s) - 1)
/* The app that a process is of: its record, data and duties are its processes' together. Elsewhere an app is one process. */
#if SHARED
#define OF(process) 0
#else
#define OF(process) (process)
#endif

mtype = { Ask, Receipt, SignIn, SignOut, Token };                      /* requests */
mtype = { Answer, Granted, Done, Failed };                             /* replies; a refusal changes nothing, and needs none */
mtype = { Ready, Asking, Hiding, Deleting, Forgetting, Reporting, AwaitingReceipt, Gone };  /* a library's phase */
mtype = { Idle, Committed, HoldsLate, EndLate };                       /* the broker's step; the last two are of mutants */

/* ---- The broker ---- */

/* Durable: changed in commits only. */
byte current;           /* the open session, 0 for none */
byte opened;            /* how many there were */
byte epoch;
bool holds[APPS];       /* has been given account or token of the open session */
byte duty[APPS];        /* ended sessions whose data the app still has to report gone */
byte expired;           /* ended sessions for which nobody waits any longer */
#if CONFIGURATIONS
bool kept;              /* a valid configuration, for starts at which the file is broken */
#endif

/* Volatile: what is left to do for the request in work. */
mtype step = Idle;
bool announcing;        /* a broadcast is due */
mtype replyTo, reply;   /* a reply is due, to this request; 0 for none */
byte replyApp, replySession;
#if SHARED
byte waits[APPS];       /* of each process: the sessions for which its own receipt is waited for */
byte asked[APPS];       /* of each process: those of `mustAsk` of which it has asked since */
byte mustAsk;           /* sessions of which no receipt counts whose sender has not asked again */
byte receipted;         /* ended sessions that one process has reported gone */
bool left[APPS];        /* its connection has ended, which the broker is still to hear of */
#endif
#if CONFIGURATIONS
bool configured;        /* a valid configuration is in force, the file's or the last one */
bool lax;               /* of a mutant: the next sign-in does not wait */

/* ---- The administrator's file ---- */

bool broken = true;
byte typos = 1;
#endif

/* ---- An app ---- */

/* Durable. */
byte record[APPS];      /* sessions whose data it may hold */
byte data[APPS];        /* sessions of which there is data on disk */
#if SHARED
byte receipts;          /* in the record: cleanups that are done and that the broker has not confirmed */
#endif

/* Volatile: the library's. */
bool ask[APPS] = true;  /* a reason to ask the broker came up */
mtype phase[APPS] = Ready;
byte seen[APPS];        /* the newest epoch of an accepted answer */
byte stale[APPS];       /* being cleaned: sessions whose data must go */
byte due[APPS];         /* being cleaned: sessions to report */
byte handed[APPS];      /* a session on its way from the library to the app's own code */
#if SHARED
byte held[APPS];        /* sessions that this process was told of and has not cleaned up */
#endif

/* Volatile: the app's own. */
byte shows[APPS];       /* the session that it shows or works for */

/* For properties only. */
byte reported[APPS];    /* sessions that it has reported gone */
byte waived[APPS];      /* sessions whose duty was waived */

/* ---- Messages ---- */

/* A request of the app's own code on its way: sign out, or get a token. It may take as long as it likes, and outlive its process.
 * Questions, receipts and sign-ins have no such place: they say the same whenever they are sent, so that the wait can be before that. */
mtype sent[APPS];
byte sentSession[APPS];
bool orphaned[APPS];    /* its process has died: nobody hears the reply */
/* Answers and replies wait here as long as they like; those to the library and those to the app's own code overtake each other. */
chan answers[APPS] = [1] of { mtype, byte, byte, byte };    /* what, session, epoch, sessions owed */
chan replies[APPS] = [1] of { mtype, mtype, byte, byte };   /* to what, what, session, epoch */
#define WAITING(app) (sent[app] != 0 || len(replies[app]) > 0 || (step != Idle && replyTo != 0 && replyTo != Ask && \
    replyTo != Receipt && replyApp == app))

/* How often something may happen. */
byte brokerCrashes = BROKER_CRASHES;
byte appCrashes = APP_CRASHES;
byte waivers = WAIVERS;
byte tokens = TOKENS;

/* Scratch of single steps; no part of the state. */
hidden byte which, stamp, owes, again, each;
hidden mtype kind, about;

/* ---- Properties of every state ---- */

hidden byte P1_one_session = 1, P2_gone_is_gone = 1, P3_debtor_waits = 1, P4_debt_no_leak = 1, P6_true_reply = 1,
    P7_configured = 1;

#define ENDED(set) ((set) & ~BIT(current))
#if APPS == 3
#define EACH(P) (P(0) && P(1) && P(2))
#define UNION(set) (set[0] | set[1] | set[2])
#else
#define EACH(P) (P(0) && P(1))
#define UNION(set) (set[0] | set[1])
#endif

/* Nothing of an older session on disk, on screen, or on the way there; but for what an administrator let go. */
#define CLEAN(x) ((ENDED(data[OF(x)] | BIT(shows[x]) | BIT(handed[x])) & ~(waived[OF(x)] | BIT(0))) == 0)
/* A debtor has nothing of a session later than its debt, nor was it given anything. */
#define POOR(x) ((duty[OF(x)] == 0 || !holds[OF(x)]) && (duty[OF(x)] & (BELOW(shows[x]) | BELOW(handed[x]))) == 0)
/* Data of an ended session is owed. */
#define OWED(x) ((ENDED(data[OF(x)]) & ~(duty[OF(x)] | record[OF(x)])) == 0)

inline check() {
    P1_one_session = POLICY != STRICT || current == 0 || EACH(CLEAN); assert(P1_one_session);
    P3_debtor_waits = EACH(POOR); assert(P3_debtor_waits);
    P4_debt_no_leak = EACH(OWED); assert(P4_debt_no_leak)
}

/* What the app shows, or works for, it has not reported gone; it is of the last answer, or about to be hidden; and there is not at the
 * same time data of another session. */
inline check_use(session) {
    P2_gone_is_gone = !(reported[self] & BIT(session)) && (data[OF(self)] & ~BIT(session)) == 0 || phase[self] == Hiding;
    assert(P2_gone_is_gone);
    P2_gone_is_gone = seen[self] == EPOCH(session) || phase[self] == Hiding;
    assert(P2_gone_is_gone)
}

/* ---- The broker's commits; each is part of one step ---- */

inline end_session() {
    each = 0;
    do
    :: each < APPS -> if :: holds[each] -> duty[each] = duty[each] | BIT(current) :: else fi; holds[each] = false; each++
    :: else -> break
    od;
    current = 0; epoch++
}

inline settle(app, sessions) {
    duty[OF(app)] = duty[OF(app)] & ~(sessions);
#if SHARED
    waits[0] = waits[0] & ~(sessions); waits[1] = waits[1] & ~(sessions); asked[0] = asked[0] & ~(sessions);
    asked[1] = asked[1] & ~(sessions); mustAsk = mustAsk & ~(sessions); receipted = receipted & ~(sessions);
#endif
    expired = expired & UNION(duty)
}

/* Sessions that the next sign-in waits for. */
#define OPEN_DUTIES (UNION(duty) & ~expired)
#define NO_CHANGE (IS(M7_SAME_USER_IS_NO_CHANGE) && opened > 0 && USER(opened) == USER(opened + 1))
#define SIGN_IN_WAITS (POLICY != ADVISORY && OPEN_DUTIES != 0 && !IS(M4_SIGN_IN_WHILE_OWED) && !NO_CHANGE && !LAX)
#if CONFIGURATIONS
#define LAX lax
#define CONFIGURED (configured || IS(M24_NEVER_CONFIGURED_SIGNS_IN))
#else
#define LAX false
#define CONFIGURED true
#endif

/* This process gets the open session's account. */
inline give(app, isListed) {
    holds[OF(app)] = isListed;
#if SHARED
    waits[app] = waits[app] | BIT(current)
#endif
}

inline open_session(app) {
    if
    :: NO_CHANGE ->
        each = 0;
        do
        :: each < APPS -> duty[each] = duty[each] & ~BIT(opened); each++
        :: else -> break
        od
    :: else
    fi;
    opened++; current = opened; epoch++;
#if CONFIGURATIONS
    P7_configured = kept; assert(P7_configured);
#endif
    give(app, !IS(M16_SIGN_IN_WITHOUT_HOLDS))
}

/* ---- The broker's messages ---- */

/* "Changed", without content. */
inline broadcast() {
    each = 0;
    do
    :: each < APPS ->
        if
        :: phase[each] == Gone || (IS(M13_SILENT_LOSS) && each == 1) || (IS(M15_BROADCAST_LOST_WHILE_ASKING) && phase[each] == Asking)
        :: else -> ask[each] = true
        fi;
        each++
    :: else -> break
    od
}

/* The reply to the request in work, as things stand. */
inline prepare(app, to, what, session) {
    replyApp = app; replyTo = to; reply = what; replySession = session
}

inline forget_reply() { replyApp = 0; replyTo = 0; reply = 0; replySession = 0 }

inline send_reply() {
    if
    :: replyTo == 0
    :: replyTo == Ask || replyTo == Receipt -> answers[replyApp]!reply, replySession, epoch, 0
    :: else -> replies[replyApp]!replyTo, reply, replySession, epoch
    fi;
    forget_reply()
}

/* What changed nothing is replied to at once. */
inline commit_then_reply() { step = Committed; announcing = false }
inline commit_then_announce() { step = Committed; announcing = true }

/* ---- The broker's requests: each decides and commits in one step, and none begins before the one before is done ---- */

/* What the app owes, without that which this process has reported: then another one of the app still owes it. */
#if SHARED
#define OWES(app) (duty[0] & ~(receipted & ~waits[app]))
/* In an answer, beside what is owed: that of which a cleanup from before does not count. */
#define OWED(app) (OWES(app) | ((OWES(app) & again) << 4))
#define OWED_BITS 15
#define AGAIN(owed) ((owed) >> 4)
#else
#define OWES(app) duty[app]
#define OWED(app) duty[app]
#endif

/* "Who is signed in?" */
inline get_account(app) {
#if SHARED
    /* Receipts from before do not count for these: a process may have stored something since. */
    again = mustAsk;
    waits[app] = waits[app] | (duty[0] & mustAsk & ~asked[app]); asked[app] = asked[app] | (duty[0] & mustAsk);
#endif
    if
    :: OWES(app) != 0 ->
        /* A debtor hears of its debt, and of nobody's account. */
        answers[app]!Answer, 0, epoch, OWED(app);
        if :: IS(M6B_LEDGER_FORGETS_ON_REPORT) -> duty[OF(app)] = 0 :: else fi
    :: else ->
        prepare(app, Ask, Answer, current);
        if
        :: current == 0 -> send_reply()
        :: current != 0 && holds[OF(app)] -> give(app, true); send_reply()
        :: else ->
            if
            :: IS(M1B_ANSWER_BEFORE_HOLDS) -> send_reply(); replyApp = app; step = HoldsLate
            :: else -> give(app, true); commit_then_reply()
            fi
        fi
    fi
}

/* "The data of this session is gone." Said again it changes nothing. */
inline take_receipt(app, session) {
    /* Data of the open session is nobody's debt. */
    P4_debt_no_leak = session != current; assert(P4_debt_no_leak);
    prepare(app, Receipt, Done, session);
    if
    :: duty[OF(app)] & BIT(session) ->
#if SHARED
        if
        :: mustAsk & ~asked[app] & BIT(session) ->
            /* Since it asked, a process has ended that may have stored something. It is to ask again, and to clean again. */
            commit_then_announce()
        :: else ->
            waits[app] = waits[app] & ~BIT(session); receipted = receipted | BIT(session);
            if
            :: ((waits[0] | waits[1]) & BIT(session)) == 0 || IS(M19_ONE_RECEIPT_FOR_ALL) -> settle(app, BIT(session))
            :: else
            fi;
            commit_then_reply()
        fi
#else
        settle(app, BIT(session)); commit_then_reply()
#endif
    :: else -> send_reply()
    fi
}

#if SHARED
#define LEFT(app) left[app]
/* The connection of a process has ended that was given something and has not reported. What it stored after another one's cleanup is there. */
inline hear_of_end(app) {
    left[app] = false;
    which = waits[app] & duty[0];
    waits[app] = 0; asked[app] = 0;
    if
    :: which == 0 || IS(M20_END_UNREPORTED_FORGOTTEN)
    :: else ->
        mustAsk = mustAsk | which; asked[0] = asked[0] & ~which; asked[1] = asked[1] & ~which;
        if :: receipted & which -> receipted = receipted & ~which; commit_then_announce() :: else fi
    fi
}
#else
#define LEFT(app) false
#endif

inline sign_in(app) {
    if
    :: current != 0 || opened == SESSIONS || !CONFIGURED || SIGN_IN_WAITS || (duty[OF(app)] != 0 && !NO_CHANGE && !LAX)
    :: else -> open_session(app); prepare(app, SignIn, Granted, current); commit_then_announce()
    fi
}

/* It names the user, and brings the user's open session. */
inline get_token(app, session) {
    if
    :: current == 0 || USER(current) != USER(session) || (OWES(app) != 0 && !IS(M9_TOKEN_FOR_DEBTOR))
    :: else ->
        prepare(app, Token, Granted, current);
        if
        :: holds[OF(app)] -> give(app, true); send_reply()
        :: else -> give(app, true); commit_then_reply()
        fi
    fi
}

/* It ends the session that the app named, no later one of the same user. */
inline sign_out(app, session) {
    if
    :: current == 0 || (current != session && !(IS(M11_SIGN_OUT_BY_USER) && USER(current) == USER(session)))
    :: else ->
        P6_true_reply = current == session; assert(P6_true_reply);
        if
        :: IS(M1A_BROADCAST_BEFORE_COMMIT) -> broadcast(); prepare(app, SignOut, Done, session); step = EndLate
        :: IS(M1C_SIGNED_OUT_BEFORE_COMMIT) -> prepare(app, SignOut, Done, session); send_reply(); step = EndLate
        :: else -> end_session(); prepare(app, SignOut, Done, session); commit_then_announce()
        fi
    fi
}

/* ---- An app's library: asks, cleans up, reports ---- */

/* Whose data is there is on disk before the app hears of it. */
inline enter(session) {
    if :: IS(M3_RECORD_AFTER_DATA) :: else -> record[OF(self)] = record[OF(self)] | BIT(session) fi;
    handed[self] = session
}

#if SHARED
/* One update of the record, under its lock; `owes` is then what is to be deleted. What this process was told of comes back into the record, where
 * another one has taken it off, and what it is about to hear of enters. An answer says nothing of later sessions: another process may have heard
 * of one. */
inline update_record(session, now) {
    record[0] = record[0] | (held[self] & ~BIT(session));
    owes = record[0] & ~BIT(session) & BELOW((now + 1) / 2 + 1);
    if :: session != 0 -> record[0] = record[0] | BIT(session); held[self] = held[self] | BIT(session) :: else fi
}

/* The record and the ledger together. A receipt in the record stands for a cleanup that was done, but not for one that is due again, and not for
 * that of a process which was told of the session itself. */
inline reconcile() {
    receipts = receipts & owes & ~record[0] & (IS(M27_AGAIN_IS_NOT_SAID) -> 255 : ~AGAIN(owes));
    owes = owes & OWED_BITS;
    record[0] = record[0] | (owes & ~receipts);
    due[self] = receipts & ~(IS(M21_OTHERS_CLEANUP_IS_MINE) -> 0 : held[self])
}
#endif

inline take_answer() {
    answers[self]?kind, which, stamp, owes;
    phase[self] = Ready;
    if
    :: kind == Failed || (stamp < seen[self] && !IS(M5_OLDER_ANSWER_ACCEPTED)) -> ask[self] = true
    :: else ->
        seen[self] = stamp;
#if SHARED
        reconcile();
        if
        :: due[self] != 0 -> phase[self] = Reporting
        :: else ->
            update_record(which, stamp);
            stale[self] = owes;
            if
            :: stale[self] != 0 -> phase[self] = Hiding
            :: else -> if :: which != 0 && which != shows[self] -> handed[self] = which :: else fi
            fi
        fi
#else
        stale[self] = record[self] & ~BIT(which);
        due[self] = stale[self] | (IS(M17_LOST_RECEIPT_NOT_REPEATED) -> 0 : owes);
        if
        :: due[self] != 0 ->
            phase[self] = Hiding;
            if :: IS(M6A_RECORD_FORGETS_ON_REPORT) -> record[self] = record[self] & ~stale[self] :: else fi
        :: else -> if :: which != 0 && which != shows[self] -> enter(which) :: else fi
        fi
#endif
    fi
}

inline cleaned() {
    stale[self] = 0; due[self] = 0; phase[self] = Ready;
    /* Who is signed in was not told to a debtor, and may have changed meanwhile. */
    if :: IS(M18_NO_QUESTION_AFTER_RECEIPT) :: else -> ask[self] = true fi
}

inline lowest(set) {
    which = 1;
    do
    :: !((set) & BIT(which)) -> which++
    :: else -> break
    od
}

inline take_receipt_reply() {
    answers[self]?kind, which, stamp, owes;
    if
    :: kind == Done -> due[self] = due[self] & ~BIT(which)
    /* Whether it was heard is not known: the broker's next answer tells. The record keeps the receipts until then. */
    :: else -> due[self] = 0
    fi;
    if
    :: due[self] != 0 -> phase[self] = Reporting
    :: else -> if :: IS(M2_RECEIPT_BEFORE_DELETION) -> phase[self] = Deleting :: else -> cleaned() fi
    fi
}

active [APPS] proctype Library() {
    byte self = _pid;
end:
    do
    :: d_step { step == Idle && ask[self] && phase[self] == Ready && !LEFT(self) ->
        ask[self] = false; phase[self] = Asking; get_account(self); check() }
#if MUTANT == M1A_BROADCAST_BEFORE_COMMIT
    /* Another thread of the broker reads what is committed. */
    :: d_step { step == EndLate && holds[self] && ask[self] && phase[self] == Ready ->
        ask[self] = false; phase[self] = Asking; answers[self]!Answer, current, epoch, 0 }
#endif
    :: d_step { phase[self] == Asking && len(answers[self]) > 0 -> take_answer(); check() }
    /* The screen is empty and all work has ended before anything is deleted. */
    :: d_step { phase[self] == Hiding ->
        shows[self] = 0;
        if :: IS(M10_WORK_OUTLIVES_CLEANUP) :: else -> handed[self] = 0 fi;
        phase[self] = (IS(M2_RECEIPT_BEFORE_DELETION) || stale[self] == 0 -> Reporting : Deleting) }
    /* One session after the other; a crash leaves what is not deleted yet. */
    :: d_step { phase[self] == Deleting ->
        if
        :: (data[OF(self)] & stale[self]) != 0 -> lowest(data[OF(self)] & stale[self]); data[OF(self)] = data[OF(self)] & ~BIT(which)
        :: else
        fi;
        if :: (data[OF(self)] & stale[self]) != 0 :: else -> phase[self] = Forgetting fi;
        check() }
    /* Before the receipts: what is reported gone is named nowhere. */
    :: d_step { phase[self] == Forgetting ->
#if SHARED
        /* Another process may have taken a session off the record; the broker waits for this one all the same. */
        due[self] = stale[self] & (IS(M26_RECEIPT_ONLY_IF_RECORDED) -> record[0] | held[self] : 255);
        receipts = (receipts & ~stale[self]) | due[self]; held[self] = held[self] & ~stale[self];
#endif
        record[OF(self)] = record[OF(self)] & ~stale[self];
        stale[self] = 0;
        if :: IS(M2_RECEIPT_BEFORE_DELETION) || due[self] == 0 -> cleaned() :: else -> phase[self] = Reporting fi;
        check() }
    :: d_step { step == Idle && phase[self] == Reporting ->
        lowest(due[self]); reported[self] = reported[self] | BIT(which);
        phase[self] = AwaitingReceipt; take_receipt(self, which); check() }
    :: d_step { phase[self] == AwaitingReceipt && len(answers[self]) > 0 -> take_receipt_reply(); check() }
    od
}

/* ---- An app's own code, and the person in front of it ---- */

inline serve_request() {
    /* Scratch holds while the request is served. */
    about = sent[self]; which = sentSession[self];
    sent[self] = 0; sentSession[self] = 0;
    if
    :: about == SignOut -> sign_out(self, which)
    :: about == Token -> get_token(self, which)
    fi;
    if
    :: orphaned[self] ->
        orphaned[self] = false;
        forget_reply();
        if :: len(replies[self]) > 0 -> replies[self]?about, kind, which, stamp :: else fi
    :: else
    fi
}

inline take_reply() {
    replies[self]?about, kind, which, stamp;
    if
    :: kind == Granted ->
        /* Not from an older epoch; and not while data of another session is to be cleaned up first. */
#if SHARED
        owes = BIT(0);
        if :: stamp >= seen[self] -> update_record(which, stamp) :: else fi;
        if
        :: owes == 0 -> seen[self] = stamp; if :: which != shows[self] -> handed[self] = which :: else fi
        :: else -> ask[self] = true
        fi
#else
        if
        :: (stamp >= seen[self] || IS(M5_OLDER_ANSWER_ACCEPTED)) &&
            ((record[self] & ~BIT(which)) == 0 || IS(M12_TOKEN_BESIDE_STALE_DATA)) ->
            seen[self] = stamp;
            if :: which != shows[self] -> enter(which) :: else fi
        :: else -> ask[self] = true
        fi
#endif
    :: kind == Done -> P6_true_reply = current != which; assert(P6_true_reply)
    :: kind == Failed -> ask[self] = true
    fi
}

inline end_process() {
    appCrashes--;
    if
    :: IS(M8_CRASH_SETTLES) && (phase[self] == Hiding || phase[self] == Deleting) -> settle(self, duty[self])
    :: else
    fi;
    ask[self] = true; phase[self] = Ready; seen[self] = 0; stale[self] = 0; due[self] = 0; handed[self] = 0; shows[self] = 0;
    if :: len(answers[self]) > 0 -> answers[self]?kind, which, stamp, owes :: else fi;
    if :: len(replies[self]) > 0 -> replies[self]?about, kind, which, stamp :: else fi;
    if :: replyTo != 0 && replyApp == self -> forget_reply() :: else fi
#if SHARED
    held[self] = 0; left[self] = true
#endif
}

#define MAY_REQUEST (phase[self] != Gone && !WAITING(self) && handed[self] == 0)

active [APPS] proctype App() {
    byte self = _pid - APPS;
end:
    do
    /* What a person does, or not. That app 0 is the first to sign in is no loss where the apps are alike. */
    :: d_step { step == Idle && MAY_REQUEST && !LEFT(self) && shows[self] == 0 && opened < SESSIONS &&
        (opened > 0 || self == 0 || MAY_STAY_DOWN) ->
        sign_in(self); check() }
    :: d_step { MAY_REQUEST && shows[self] != 0 -> sent[self] = SignOut; sentSession[self] = shows[self] }
    :: d_step { MAY_REQUEST && shows[self] != 0 && tokens > 0 -> tokens--; sent[self] = Token; sentSession[self] = shows[self] }
    :: d_step { shows[self] != 0 && !(data[self] & BIT(shows[self])) ->
        check_use(shows[self]); data[self] = data[self] | BIT(shows[self]); check() }
    /* Or a person does nothing. */
    :: d_step { MAY_REQUEST && shows[self] != 0 -> skip }
    /* The request gets to the broker. */
    :: d_step { step == Idle && sent[self] != 0 -> serve_request(); check() }
    /* The library takes one answer at a time. */
    :: d_step { phase[self] != Asking && len(replies[self]) > 0 -> take_reply(); check() }
    :: d_step { handed[self] != 0 -> check_use(handed[self]); shows[self] = handed[self]; handed[self] = 0; check() }
    /* It is killed, and starts again: by D-Bus activation, or because somebody wants it. The first thing it does is to ask; before
     * that it does nothing, so that its time away needs no state of its own. A request on its way is lost, or arrives all the same. */
#if !SHARED || MAY_RETURN
    :: d_step { appCrashes > 0 && phase[self] != Gone -> end_process(); sent[self] = 0; sentSession[self] = 0; check() }
#endif
#if !SHARED
    :: d_step { appCrashes > 0 && phase[self] != Gone && sent[self] != 0 -> end_process(); orphaned[self] = true; check() }
#endif
#if MAY_STAY_DOWN || SHARED
    /* It never comes back. */
    :: d_step { appCrashes > 0 && phase[self] != Gone ->
        end_process(); sent[self] = 0; sentSession[self] = 0; ask[self] = false; phase[self] = Gone; check() }
#endif
#if MUTANT == M3_RECORD_AFTER_DATA
    :: d_step { (data[self] & ~record[self]) != 0 -> record[self] = record[self] | data[self] }
#endif
    od
}

/* ---- The broker's process ---- */

active proctype Broker() {
end:
    do
    /* It is killed. The caller whose request was in work hears that there is no reply. Started again, by D-Bus activation or its
     * supervisor, it tells all to ask; before that it does nothing, so that its time away needs no state of its own. */
    :: d_step { brokerCrashes > 0 && step != Idle ->
        brokerCrashes--;
        if :: replyTo != 0 -> reply = Failed; send_reply() :: else -> forget_reply() fi;
#if SHARED
        /* Who has asked is not known any more; the ledger has which connections were given what, and the bus says which of them are gone. */
        asked[0] = 0; asked[1] = 0; receipted = 0;
        if :: IS(M22_RESTART_TRUSTS_RECEIPTS) -> mustAsk = 0 :: else fi;
#endif
#if CONFIGURATIONS
        /* It reads the file anew. */
        configured = !broken || (kept && !IS(M25_BROKEN_FORGETS_THE_LAST));
        lax = broken && IS(M23_BROKEN_IS_DEFAULT);
#endif
        if :: IS(M14_NO_BROADCAST_AT_RESTART) -> announcing = false; step = Idle :: else -> commit_then_announce() fi }
#if SHARED
    :: d_step { step == Idle && left[0] -> hear_of_end(0); check() }
    :: d_step { step == Idle && left[1] -> hear_of_end(1); check() }
#endif
    /* The administrator or the device's timer ends the session; or not. */
    :: d_step { step == Idle && current != 0 -> end_session(); commit_then_announce(); check() }
    :: d_step { step == Idle && current != 0 -> skip }
    /* After a commit. */
    :: d_step { step == Committed ->
        if :: announcing -> broadcast() :: else fi;
        send_reply(); announcing = false; step = Idle }
#if MUTANT == M1B_ANSWER_BEFORE_HOLDS
    :: d_step { step == HoldsLate -> holds[replyApp] = true; replyApp = 0; step = Idle }
#endif
#if MUTANT == M1A_BROADCAST_BEFORE_COMMIT || MUTANT == M1C_SIGNED_OUT_BEFORE_COMMIT
    :: d_step { step == EndLate -> end_session(); commit_then_reply(); announcing = IS(M1C_SIGNED_OUT_BEFORE_COMMIT) }
#endif
#if WAIVERS > 0
    :: d_step { step == Idle && waivers > 0 && duty[0] != 0 -> waivers--; waived[0] = waived[0] | duty[0]; settle(0, duty[0]); check() }
    :: d_step { step == Idle && waivers > 0 && duty[1] != 0 -> waivers--; waived[1] = waived[1] | duty[1]; settle(1, duty[1]); check() }
#endif
    od
}

#if CONFIGURATIONS
active proctype Administrator() {
end:
    do
    /* A running broker takes up what is valid, and keeps it; what is broken changes nothing until the next start. Before the first valid
     * configuration the administrator has to write one; a later typo may stay. */
    :: d_step { step == Idle && broken -> broken = false; configured = true; kept = true; lax = false }
    :: d_step { step == Idle && broken && kept -> skip }
    :: d_step { !broken && typos > 0 -> typos--; broken = true }
    :: d_step { !broken && typos > 0 -> skip }
    od
}
#endif

#if POLICY == TIMEOUT
active proctype Timer() {
end:
    do
    :: d_step { step == Idle && OPEN_DUTIES != 0 -> expired = UNION(duty) }
    od
}
#endif

/* ---- Properties of every run, where each process that can go on does so at some time ---- */

/* P5: every round ends, or is given up by the timeout. */
ltl rounds_end { [] (OPEN_DUTIES != 0 -> <> (OPEN_DUTIES == 0)) }
/* P5: who wants to sign in comes to do so, as long as there are sessions left to model. */
ltl wishes_granted { [] (current == 0 && opened < SESSIONS -> <> (current != 0)) }
/* P5: every app gets to show the open session, or it ends before. */
#define SHOWN(x) (shows[x] == current)
ltl all_follow { [] ((current != 0) -> <> (current == 0 || EACH(SHOWN))) }
