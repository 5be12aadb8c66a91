// The functions from C++, as a class would use them.
#include "expect.h"
#include <notify_keys.h>
#include <notify_private.h>
#include <string>
#include <thread>
#include <vector>

class Registration {
    int token_ = NOTIFY_TOKEN_INVALID;

public:
    explicit Registration(const std::string &name) { EXPECT_OK(notify_register_check(name.c_str(), &token_)); }
    ~Registration() { EXPECT_OK(notify_cancel(token_)); }
    Registration(const Registration &) = delete;
    Registration &operator=(const Registration &) = delete;
    bool changed() const { return checked(token_) == 1; }
};

int main() {
    Registration hostname(kNotifySCHostnameChange), news("org.example.c++");
    EXPECT(hostname.changed() && news.changed());
    EXPECT(!hostname.changed() && !news.changed());
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) {
        threads.emplace_back([] {
            for (int turn = 0; turn < 250; turn++) {
                Registration mine("org.example.c++");
                EXPECT(mine.changed());
                EXPECT_OK(notify_simple_post("org.example.c++"));
            }
        });
    }
    for (auto &thread : threads) thread.join();
    fence();
    EXPECT(news.changed() && !news.changed() && !hostname.changed());
    return finish();
}
