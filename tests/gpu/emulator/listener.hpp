// SPDX-License-Identifier: Apache-2.0
//
// Checks of a test program on the emulator in addition to its own: a kernel that failed, a write beside an allocation,
// device memory that a case leaves in use. Any of them ends the program with status 1. Included by one file of the
// program.
//
// If the environment variable CUPOLA_EMULATED_KERNELS names a file, the names of the kernels that ran are written to it:
// see every_kernel.sh.
#pragma once

#include <cstdio>
#include <cstdlib>

#include <doctest/doctest.h>

#include "control.hpp"

namespace cupola::emulator {

struct Listener : doctest::IReporter {
    explicit Listener(const doctest::ContextOptions&) {}
    void report_query(const doctest::QueryData&) override {}
    void test_run_start() override {}
    void test_run_end(const doctest::TestRunStats&) override {
        if (const char* const path = std::getenv("CUPOLA_EMULATED_KERNELS"); path != nullptr) {
            std::FILE* const file = std::fopen(path, "w");
            if (file == nullptr) bad = true;
            for (const std::string& kernel : kernels_that_ran())
                bad = bad || std::fprintf(file, "%s\n", kernel.c_str()) < 0;
            if (file != nullptr && std::fclose(file) != 0) bad = true;
        }
        if (!bad) return;
        std::fflush(nullptr);
        std::_Exit(1);
    }
    void test_case_start(const doctest::TestCaseData& its) override { case_name = its.m_name; }
    void test_case_reenter(const doctest::TestCaseData&) override {}
    void test_case_end(const doctest::CurrentTestCaseStats&) override {
        const std::string what = failure();
        if (!what.empty()) std::printf("%s: %s\n", case_name, what.c_str());
        if (memory_in_use() != 0)
            std::printf("%s: %zu bytes of a device are left in use\n", case_name, memory_in_use());
        bad = bad || !what.empty() || memory_in_use() != 0;
        mend();
    }
    void test_case_exception(const doctest::TestCaseException&) override {}
    void subcase_start(const doctest::SubcaseSignature&) override {}
    void subcase_end() override {}
    void log_assert(const doctest::AssertData&) override {}
    void log_message(const doctest::MessageData&) override {}
    void test_case_skipped(const doctest::TestCaseData&) override {}

    const char* case_name = "";
    bool bad = false;
};

REGISTER_LISTENER("emulator", 2, Listener);

}  // namespace cupola::emulator
