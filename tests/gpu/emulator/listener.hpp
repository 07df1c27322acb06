// SPDX-License-Identifier: Apache-2.0
//
// Checks of a test program on the emulator in addition to its own: a kernel that failed, a write beside an
// allocation, device memory that a case leaves in use, and a file with tests for whose plans cuDNN would take longer
// than its time of the stages of tests/gpu/run. Any of them ends the program with status 1. Included by one file of
// the program.
//
// If the environment variable CUPOLA_EMULATED_KERNELS names a file, the names of the kernels that ran are written to it:
// see every_kernel.sh. If CUPOLA_EMULATED_PLANNING is set, the time for the plans of each file is printed.
#pragma once

#include "../../test.hpp"

#include "../../case_listener.hpp"
#include "control.hpp"

namespace cupola::emulator {

/// The seconds that cuDNN may take for the plans of a file with tests. The first stage of tests/gpu/run runs several
/// at a time.
inline constexpr double planning_budget = 12;

/// The files of tests/gpu are for the emulator, but for one.
[[nodiscard]] inline bool runs_on_gpus(std::string_view file) {
    return file.find("/gpu/") == std::string_view::npos || file.ends_with("/gpu/data.cpp");
}

struct Listener : CaseListener {
    using CaseListener::CaseListener;
    void test_run_end(const doctest::TestRunStats&) override {
        for (const auto& [of_file, seconds] : planning) {
            const bool much = seconds > planning_budget && runs_on_gpus(of_file);
            if (much || std::getenv("CUPOLA_EMULATED_PLANNING") != nullptr)
                std::printf("%s: cuDNN would take %.1f s for its plans, of at most %.1f\n", of_file.c_str(), seconds,
                            planning_budget);
            bad = bad || much;
        }
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
    void test_case_start(const doctest::TestCaseData& its) override {
        case_name = its.m_name;
        case_file = its.m_file.c_str();
        planned_before = planning_seconds();
    }
    void test_case_end(const doctest::CurrentTestCaseStats&) override {
        const std::string what = failure();
        if (!what.empty()) std::printf("%s: %s\n", case_name, what.c_str());
        if (memory_in_use() != 0)
            std::printf("%s: %zu bytes of a device are left in use\n", case_name, memory_in_use());
        bad = bad || !what.empty() || memory_in_use() != 0;
        planning[case_file] += planning_seconds() - planned_before;
        mend();
    }

    const char *case_name = "", *case_file = "";
    double planned_before = 0;
    std::map<std::string, double> planning;
    bool bad = false;
};

REGISTER_LISTENER("emulator", 2, Listener);

}  // namespace cupola::emulator
