from iris_under_test.ccl import Config

__all__ = ["Config"]
